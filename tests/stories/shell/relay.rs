//! Stories about `serve --relay`, with a test relay that speaks smee's protocol.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use super::{
    process::{free_address, run_countersign, text},
    server::Site,
};

/// Function that turns a delivery's body into the part of the relay's event that contains the body.
type Quoting = fn(&str) -> String;

struct Relay {
    channel: String,
    listeners: Arc<Mutex<Vec<TcpStream>>>,
    quoting: Arc<Mutex<Quoting>>,
}

/// Puts the JSON body unchanged into the event, as smee's own server does.
fn unchanged(body: &str) -> String {
    format!("\"body\":{body}")
}

fn reformatted(body: &str) -> String {
    format!("\"body\":{}", body.replacen('{', "{ ", 1))
}

fn with_raw_body(body: &str) -> String {
    format!("\"body\":{{}},\"rawbody\":{}", serde_json::to_string(body).unwrap())
}

impl Relay {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let channel = format!("http://{}/channel", listener.local_addr().unwrap());
        let relay =
            Self { channel, listeners: Arc::default(), quoting: Arc::new(Mutex::new(unchanged as Quoting)) };
        let (listeners, quoting) = (relay.listeners.clone(), relay.quoting.clone());
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                serve(client, &listeners, &quoting);
            }
        });
        relay
    }

    /// Sends these bytes to all listeners, then closes their connections.
    fn end_with(&self, last: &[u8]) {
        for mut stream in self.listeners.lock().unwrap().drain(..) {
            let _ = stream.write_all(last);
        }
    }

    fn hang_up(&self) {
        self.listeners.lock().unwrap().clear();
    }
}

fn serve(mut client: TcpStream, listeners: &Mutex<Vec<TcpStream>>, quoting: &Mutex<Quoting>) {
    let mut reader = BufReader::new(client.try_clone().unwrap());
    let head: Vec<String> =
        reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let headers: Vec<(String, &str)> = head
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    let value = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
    if value("accept") == Some("text/event-stream") {
        let open =
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: 0\nevent: ready\ndata: {}\n\n";
        // The lock is held until the listener is registered.
        let mut listeners = listeners.lock().unwrap();
        client.write_all(open.as_bytes()).unwrap();
        listeners.push(client);
        return;
    }
    let mut body = vec![0; value("content-length").unwrap().parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let named: Vec<_> = headers.iter().map(|(name, value)| format!("{name:?}:{value:?}")).collect();
    let body = quoting.lock().unwrap()(std::str::from_utf8(&body).unwrap());
    let event = format!("id: 1\ndata: {{{},{body},\"query\":{{}},\"timestamp\":1}}\n\n", named.join(","));
    // Sends each delivery twice, the second time with another id.
    let guid = value("x-github-delivery").unwrap();
    let again = event.replace(guid, &guid.chars().rev().collect::<String>());
    for stream in listeners.lock().unwrap().iter_mut() {
        // Some listeners may be gone.
        let _ = stream.write_all(event.as_bytes()).and_then(|()| stream.write_all(again.as_bytes()));
    }
    client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
}

/// Returns an unfinished event that is longer than any delivery.
fn endless() -> Vec<u8> {
    [b"data: ".to_vec(), vec![b'x'; 60_000_000]].concat()
}

#[test]
fn relayed_delivery_without_a_valid_signature_is_refused() {
    let relay = Relay::new();
    let mut site = Site::bare();
    site.set_up(&relay.channel);
    let address = site.listening();
    site.edit(&address, &free_address());
    let mut serving = site.serve_with(&["--relay", &relay.channel]);
    serving.wait_for_line("listening to the relay");

    *relay.quoting.lock().unwrap() = reformatted;
    let issue = site.label("countersign:lld");
    let printed = serving.wait_for_line("delivery from the relay refused: The signature does not match");
    assert!(
        printed.contains("also breaks the signature; the sweep of GitHub's log fetches the delivery itself"),
        "{printed}"
    );

    relay.hang_up();
    serving.wait_for_line("lost the relay: it closed the connection; reconnecting in 1 s");
    serving.wait_for_line("listening to the relay");
    let (code, printed) = site.doctor();
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.contains(&format!("{0} is a relay's channel; start serve with --relay {0}", relay.channel)),
        "{printed}"
    );
    for (last, printed) in [
        (
            &b"data: no JSON\n\ndata: {\"body\": {}, \"x-github-event\": \"a\\nb\"}\n\n"[..],
            "is not a request; ignored it",
        ),
        (b"data: {\"body\": {}}\n\n", "delivery from the relay refused"),
        (b"data: \xff\xfe\n\n", "lost the relay: "),
        (&endless(), "an event is longer than any delivery"),
    ] {
        relay.end_with(last);
        serving.wait_for_line(printed);
        serving.wait_for_line("listening to the relay");
    }
    *relay.quoting.lock().unwrap() = unchanged;
    site.comment(&issue, "/lld");
    site.wait_for(&issue, "/approve lld ");
    let runs = run_countersign(&["runs", "--all", "--json", "--config", site.config().to_str().unwrap()]);
    let runs = text(&runs.stdout);
    assert_eq!(
        runs.matches("\"workflow\": \"lld\"").count(),
        1,
        "a delivery that came twice started one run: {runs}"
    );
    *relay.quoting.lock().unwrap() = with_raw_body;
    site.comment(&issue, "/stop");
    site.wait_for(&issue, "lld: stopped");
}
