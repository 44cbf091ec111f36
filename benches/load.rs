//! Generates load: sends signed deliveries over keep-alive connections. Each connection sends the next delivery after
//! the response to the previous one. Uses a single thread, so that the server has the other core.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::LocalSet,
};

use crate::measure::{Samples, Sorted, ms};

/// A webhook that is sent repeatedly, each time with a new delivery ID.
#[derive(Clone)]
pub(crate) struct Shot {
    bytes: Vec<u8>,
    id_at: usize,
}

impl Shot {
    pub(crate) fn new(address: SocketAddr, path: &str, secret: &str, body: &[u8]) -> Self {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any length is a key");
        mac.update(body);
        let signature = hex::encode(mac.finalize().into_bytes());
        let mark = delivery_id(0, 0, 0);
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: GitHub-Hookshot/bench\r\nContent-Type: \
             application/json\r\nX-GitHub-Event: issues\r\nX-GitHub-Hook-ID: 1\r\nX-Hub-Signature-256: \
             sha256={signature}\r\nContent-Length: {}\r\nX-GitHub-Delivery: {mark}\r\n\r\n",
            body.len()
        );
        let id_at = head.find(&mark).expect("it was just written");
        Self { bytes: [head.as_bytes(), body].concat(), id_at }
    }
}

/// Returns a delivery ID that is unique within its `series`.
pub(crate) fn delivery_id(series: u32, connection: usize, count: usize) -> String {
    format!("{series:08x}-{connection:04x}-4000-8000-{count:012x}")
}

/// Result of a load run.
pub(crate) struct Outcome {
    pub(crate) seconds: f64,
    /// Number of deliveries answered with success.
    pub(crate) accepted: usize,
    /// Number of deliveries answered with an error or not answered at all.
    pub(crate) refused: usize,
    pub(crate) latency: Sorted,
    /// Sequence numbers of the accepted deliveries, one list per connection. A connection that the server closes sends
    /// no more deliveries.
    pub(crate) ids: Vec<Vec<usize>>,
}

impl Outcome {
    pub(crate) fn rate(&self) -> f64 {
        self.accepted as f64 / self.seconds
    }
}

/// Sends deliveries over `connections` connections for the duration `lasting`.
pub(crate) fn fire(
    address: SocketAddr,
    shot: &Shot,
    series: u32,
    connections: usize,
    lasting: Duration,
) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let started = Instant::now();
    let until = started + lasting;
    let ends = runtime.block_on(LocalSet::new().run_until(async {
        let tasks: Vec<_> = (0..connections)
            .map(|number| tokio::task::spawn_local(one(address, shot.clone(), series, number, until)))
            .collect();
        let mut ends = Vec::new();
        for task in tasks {
            ends.push(task.await.expect("a connection's task"));
        }
        ends
    }));
    let seconds = started.elapsed().as_secs_f64();
    Outcome {
        seconds,
        accepted: ends.iter().map(|end| end.accepted.len()).sum(),
        refused: ends.iter().map(|end| end.refused).sum(),
        latency: ends.iter().flat_map(|end| end.latency.iter().copied()).collect::<Samples>().sorted(),
        ids: ends.into_iter().map(|end| end.accepted).collect(),
    }
}

#[derive(Default)]
struct End {
    accepted: Vec<usize>,
    refused: usize,
    latency: Vec<f64>,
}

async fn one(address: SocketAddr, mut shot: Shot, series: u32, number: usize, until: Instant) -> End {
    let mut end = End::default();
    let Ok(mut stream) = TcpStream::connect(address).await else {
        end.refused += 1;
        return end;
    };
    let _ = stream.set_nodelay(true);
    let mut answer = Vec::with_capacity(1024);
    for count in 0.. {
        if Instant::now() >= until {
            break;
        }
        let id = delivery_id(series, number, count);
        shot.bytes[shot.id_at..shot.id_at + id.len()].copy_from_slice(id.as_bytes());
        let sent = Instant::now();
        if stream.write_all(&shot.bytes).await.is_err() {
            end.refused += 1;
            break;
        }
        match read_answer(&mut stream, &mut answer).await {
            Some(status) if (200..300).contains(&status) => {
                end.latency.push(ms(sent.elapsed()));
                end.accepted.push(count);
            }
            Some(_) => end.refused += 1,
            None => {
                end.refused += 1;
                break;
            }
        }
    }
    end
}

/// Reads one complete response and returns its status code; `None` if the connection is closed before the end.
async fn read_answer(stream: &mut TcpStream, answer: &mut Vec<u8>) -> Option<u16> {
    answer.clear();
    loop {
        if stream.read_buf(answer).await.ok()? == 0 {
            return None;
        }
        let Some(head) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let text = std::str::from_utf8(&answer[..head]).ok()?.to_ascii_lowercase();
        let body = &answer[head + 4..];
        let whole = match text.lines().find_map(|line| line.strip_prefix("content-length:")) {
            Some(length) => body.len() >= length.trim().parse().ok()?,
            None => !text.contains("transfer-encoding: chunked") || body.ends_with(b"0\r\n\r\n"),
        };
        if whole {
            return text.split(' ').nth(1)?.parse().ok();
        }
    }
}
