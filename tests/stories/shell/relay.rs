//! `serve --relay` against a relay of this test's, which speaks as smee does.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use super::{
    process::{finished, free_address, text},
    server::Site,
};

/// What it does to a body on its way.
type Quoting = fn(&str) -> String;

struct Relay {
    channel: String,
    listening: Arc<Mutex<Vec<TcpStream>>>,
    quoting: Arc<Mutex<Quoting>>,
}

/// As smee's own server does: the JSON as it is, beside the headers.
fn as_it_is(body: &str) -> String {
    format!("\"body\":{body}")
}

fn read_and_written_anew(body: &str) -> String {
    format!("\"body\":{}", body.replacen('{', "{ ", 1))
}

fn with_the_bytes(body: &str) -> String {
    format!("\"body\":{{}},\"rawbody\":{}", serde_json::to_string(body).unwrap())
}

impl Relay {
    fn new() -> Self {
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let channel = format!("http://{}/channel", door.local_addr().unwrap());
        let relay =
            Self { channel, listening: Arc::default(), quoting: Arc::new(Mutex::new(as_it_is as Quoting)) };
        let (listening, quoting) = (relay.listening.clone(), relay.quoting.clone());
        thread::spawn(move || {
            for client in door.incoming().map_while(Result::ok) {
                serve(client, &listening, &quoting);
            }
        });
        relay
    }

    /// Says this to whoever listens, and hangs up.
    fn end_with(&self, last: &[u8]) {
        for mut stream in self.listening.lock().unwrap().drain(..) {
            let _ = stream.write_all(last);
        }
    }

    fn hang_up(&self) {
        self.listening.lock().unwrap().clear();
    }
}

fn serve(mut client: TcpStream, listening: &Mutex<Vec<TcpStream>>, quoting: &Mutex<Quoting>) {
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
        // Whoever has heard of it is in the list.
        let mut listening = listening.lock().unwrap();
        client.write_all(open.as_bytes()).unwrap();
        listening.push(client);
        return;
    }
    let mut body = vec![0; value("content-length").unwrap().parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let named: Vec<_> = headers.iter().map(|(name, value)| format!("{name:?}:{value:?}")).collect();
    let body = quoting.lock().unwrap()(std::str::from_utf8(&body).unwrap());
    let event = format!("id: 1\ndata: {{{},{body},\"query\":{{}},\"timestamp\":1}}\n\n", named.join(","));
    // What it hands on it may hand on once more, under another name.
    let guid = value("x-github-delivery").unwrap();
    let again = event.replace(guid, &guid.chars().rev().collect::<String>());
    for stream in listening.lock().unwrap().iter_mut() {
        // Some of those who listened are gone.
        let _ = stream.write_all(event.as_bytes()).and_then(|()| stream.write_all(again.as_bytes()));
    }
    client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
}

/// More than any delivery is, and no end of it.
fn endless() -> Vec<u8> {
    [b"data: ".to_vec(), vec![b'x'; 60_000_000]].concat()
}

#[test]
fn deliveries_come_through_a_relay_and_none_is_believed_without_its_signature() {
    let relay = Relay::new();
    let mut site = Site::bare();
    site.set_up(&relay.channel);
    let listening = site.listening();
    site.edit(&listening, &free_address());
    let mut serving = site.serve_with(&["--relay", &relay.channel]);
    serving.hear("listening to the relay");

    *relay.quoting.lock().unwrap() = read_and_written_anew;
    let issue = site.label("countersign:lld");
    let said = serving.hear("a delivery of the relay was refused: The signature does not fit");
    assert!(
        said.contains("breaks the signature, too; the sweep of GitHub's log fetches the delivery itself"),
        "{said}"
    );

    relay.hang_up();
    serving.hear("nothing comes from the relay: it closed the connection; it is asked again in 1 s");
    serving.hear("listening to the relay");
    let (code, said) = site.doctor();
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains(&format!(
            "{0} is a relay's channel; serve takes from it with --relay {0}",
            relay.channel
        )),
        "{said}"
    );
    for (last, said) in [
        (
            &b"data: no JSON\n\ndata: {\"body\": {}, \"x-github-event\": \"a\\nb\"}\n\n"[..],
            "is no request; nothing was made of it",
        ),
        (b"data: {\"body\": {}}\n\n", "a delivery of the relay was refused"),
        (b"data: \xff\xfe\n\n", "nothing comes from the relay: "),
        (&endless(), "an event is longer than any delivery"),
    ] {
        relay.end_with(last);
        serving.hear(said);
        serving.hear("listening to the relay");
    }
    *relay.quoting.lock().unwrap() = as_it_is;
    site.comment(&issue, "/lld");
    site.wait_for(&issue, "/approve lld ");
    let runs = finished(&["runs", "--all", "--json", "--config", site.config().to_str().unwrap()]);
    let runs = text(&runs.stdout);
    assert_eq!(runs.matches("\"workflow\": \"lld\"").count(), 1, "what came twice began once: {runs}");
    *relay.quoting.lock().unwrap() = with_the_bytes;
    site.comment(&issue, "/stop");
    site.wait_for(&issue, "lld: stopped");
}
