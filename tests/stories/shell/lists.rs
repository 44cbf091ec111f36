//! Imitations of the model lists that the services offer.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
};

use serde_json::{Value, json};

/// Serves Anthropic's and Google's model lists with these models until the tests end. Returns the server's address.
pub(super) fn serve(claude: &[&str], gemini: &[&str]) -> String {
    let ids: Vec<Value> = claude.iter().map(|id| json!({"id": id})).collect();
    let names: Vec<Value> = gemini.iter().map(|id| json!({"name": format!("models/{id}")})).collect();
    let lists =
        [json!({"data": ids, "has_more": false}), json!({"models": names})].map(|list| list.to_string());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || listener.incoming().flatten().for_each(|caller| drop(answer(caller, &lists))));
    address
}

fn answer(mut caller: TcpStream, [claude, gemini]: &[String; 2]) -> std::io::Result<()> {
    let mut lines = BufReader::new(caller.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let list = if first.starts_with("GET /v1beta/models?") { gemini } else { claude };
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", list.len());
    caller.write_all(format!("{head}{list}").as_bytes())
}

/// Returns settings that send the calls to both services to `address`.
pub(super) fn services(address: &str) -> String {
    format!("[providers.anthropic]\nbase_url = \"{address}\"\n[providers.gemini]\nbase_url = \"{address}\"\n")
}
