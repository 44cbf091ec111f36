//! The sandbox's network access: a proxy that connects only to the hosts that the operator allows.
//!
//! It supports only `CONNECT`, so it sees host names but no contents.

use std::{
    collections::BTreeSet,
    fmt, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixListener, UnixStream},
    sync::Semaphore,
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Hosts,
    egress::{CONNECT_TIMEOUT, HostPolicy, HostRefusal, RefusalReason, format_host},
};

/// Maximum number of bytes that one command may send and receive in total.
pub const FETCHED_BYTES: u64 = 4 << 30;

/// Maximum number of concurrent connections. Package managers use about a dozen.
const CONNECTIONS: usize = 64;

/// Maximum number of bytes of a request line with its headers.
const HEAD_BYTES: usize = 8 << 10;

/// Number of requests that may fail because a host does not answer, before we assume that it never will. npm asks
/// without end.
const MOST_RETRIES: u64 = 100;

/// Maximum number of refused requests kept for the report.
const REFUSALS: usize = 20;

impl ProxyState {
    fn new(hosts: Hosts, bytes: u64) -> Self {
        Self {
            hosts,
            refused: Mutex::default(),
            left: bytes.into(),
            spent: CancellationToken::new(),
            unreachable: AtomicU64::new(0),
            refused_for_good: CancellationToken::new(),
        }
    }

    /// Resolves the host and returns the addresses to which we may connect.
    async fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, HostRefusal> {
        HostPolicy(&self.hosts).resolve(host, port).await
    }
}

impl fmt::Display for HostRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, why } = self;
        match why {
            RefusalReason::NotAllowed if Hosts::try_from(vec![host.clone()]).is_err() => {
                write!(f, "`{host}` is not a valid host for `hosts` under [sandbox]")
            }
            RefusalReason::NotAllowed => write!(
                f,
                "`{host}` is not allowed; `--host {host}` allows it here, and `hosts = [\"{host}\"]` under [sandbox] in the server's settings"
            ),
            RefusalReason::AlwaysBlocked => {
                write!(f, "`{host}` resolves to an address that is always blocked")
            }
            RefusalReason::InternalNetwork => write!(
                f,
                "`{host}` resolves to an internal network; allow its addresses too (`--host`, or `hosts` under [sandbox])"
            ),
            RefusalReason::Unreachable => write!(f, "`{host}` does not answer"),
            RefusalReason::TransferLimit => {
                write!(f, "`{host}` was cut off: the total transfer limit is reached")
            }
        }
    }
}

/// A running proxy. Dropping it stops the proxy.
#[derive(Debug)]
pub struct SandboxProxy {
    socket: PathBuf,
    shared: Arc<ProxyState>,
    serving: JoinHandle<()>,
}

#[derive(Debug)]
struct ProxyState {
    hosts: Hosts,
    refused: Mutex<BTreeSet<HostRefusal>>,
    /// Number of bytes that may still be transferred, counting both directions together.
    left: AtomicU64,
    spent: CancellationToken,
    /// Number of requests whose host did not answer.
    unreachable: AtomicU64,
    /// Cancelled when a host is refused for good.
    refused_for_good: CancellationToken,
}

impl SandboxProxy {
    /// Starts a proxy that listens on `socket` and transfers at most `bytes` in total.
    ///
    /// # Errors
    /// Returns an error if the socket cannot be created.
    pub fn open(socket: &Path, hosts: Hosts, bytes: u64) -> io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        let shared = Arc::new(ProxyState::new(hosts, bytes));
        let serving = tokio::spawn(Arc::clone(&shared).serve(listener));
        Ok(Self { socket: socket.to_owned(), shared, serving })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Waits until a host is refused for a reason that a retry does not change.
    pub async fn wait_for_refusal(&self) {
        self.shared.refused_for_good.cancelled().await;
    }

    /// Returns the refused requests, up to the maximum `REFUSALS`.
    pub fn refusals(&self) -> Vec<HostRefusal> {
        self.shared.refused.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl Drop for SandboxProxy {
    /// Aborts the proxy's task, which closes its connections.
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl ProxyState {
    async fn serve(self: Arc<Self>, listener: UnixListener) {
        let (permits, mut open) = (Arc::new(Semaphore::new(CONNECTIONS)), JoinSet::new());
        loop {
            while open.try_join_next().is_some() {}
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((client, _)) => {
                    let shared = Arc::clone(&self);
                    open.spawn(async move {
                        let _ = shared.handle_client(client).await;
                        drop(permit);
                    });
                }
                // Possibly out of file descriptors; retry, since some get closed.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    async fn handle_client(&self, mut client: UnixStream) -> io::Result<()> {
        let head = timeout(CONNECT_TIMEOUT, read_head(&mut client)).await;
        let Some((host, port)) = head.ok().and_then(Result::ok).as_deref().and_then(parse_target) else {
            return client.write_all(b"HTTP/1.1 405 Only CONNECT\r\ncontent-length: 0\r\n\r\n").await;
        };
        match self.connect(&host, port).await {
            Ok(mut server) => {
                client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await?;
                tokio::select! {
                    biased;
                    () = self.spent.cancelled() => {
                        self.record_refusal(HostRefusal { host: format_host(&host, port), why: RefusalReason::TransferLimit });
                        Ok(())
                    }
                    done = self.relay(&mut client, &mut server) => done,
                }
            }
            Err(refusal) => {
                let line = format!(
                    "HTTP/1.1 403 Refused\r\ncontent-length: {}\r\n\r\n{refusal}\n",
                    refusal.to_string().len() + 1
                );
                self.record_refusal(refusal);
                client.write_all(line.as_bytes()).await
            }
        }
    }

    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, HostRefusal> {
        if self.spent.is_cancelled() {
            return Err(HostRefusal { host: format_host(host, port), why: RefusalReason::TransferLimit });
        }
        let addresses = self.addresses(host, port).await?;
        let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(addresses.as_slice())).await;
        connected
            .ok()
            .and_then(Result::ok)
            .ok_or_else(|| HostRefusal { host: format_host(host, port), why: RefusalReason::Unreachable })
    }

    fn record_refusal(&self, refusal: HostRefusal) {
        let lasting = refusal.why != RefusalReason::Unreachable
            || self.unreachable.fetch_add(1, Ordering::Relaxed) > MOST_RETRIES;
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() < REFUSALS {
            refused.insert(refusal);
        }
        drop(refused);
        if lasting {
            self.refused_for_good.cancel();
        }
    }

    async fn relay(&self, client: &mut UnixStream, server: &mut TcpStream) -> io::Result<()> {
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        tokio::try_join!(self.copy_counted(from_client, to_server), self.copy_counted(from_server, to_client))
            .map(drop)
    }

    async fn copy_counted(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let read = from.read(&mut buffer).await?;
            if read == 0 {
                return to.shutdown().await;
            }
            let less = |left: u64| left.checked_sub(read as u64);
            if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_err() {
                self.spent.cancel();
                return Ok(());
            }
            to.write_all(&buffer[..read]).await?;
        }
    }
}

/// Reads the request up to the empty line after the headers. The client sends no further data until it gets our
/// response.
async fn read_head(client: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_BYTES {
        head.push(client.read_u8().await?);
    }
    Ok(head)
}

/// Parses host and port of `CONNECT host:port HTTP/1.1`.
fn parse_target(head: &[u8]) -> Option<(String, u16)> {
    let line = std::str::from_utf8(head).ok()?.lines().next()?;
    let [method, target, version] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
    let (host, port) = target.rsplit_once(':')?;
    (method == "CONNECT" && version.starts_with("HTTP/1.")).then_some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::egress::tests::hosts;

    /// Starts a server that sends `payload` to each client, and returns the server's port.
    async fn spawn_server(payload: Vec<u8>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(&payload).await;
            }
        });
        port
    }

    async fn send_request(proxy: &SandboxProxy, request: &str) -> String {
        let mut client = UnixStream::connect(proxy.socket()).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        let mut all = Vec::new();
        let _ = client.read_to_end(&mut all).await;
        String::from_utf8_lossy(&all).into_owned()
    }

    #[tokio::test]
    async fn proxy_connects_to_allowed_hosts_and_refuses_others_with_a_reason() {
        let directory = tempfile::tempdir().unwrap();
        let port = spawn_server(b"hello".to_vec()).await;
        let open = |name: &str, hosts: Hosts, bytes| {
            SandboxProxy::open(&directory.path().join(name), hosts, bytes).unwrap()
        };
        let proxy = open(
            "a",
            hosts(&["127.0.0.0/8", &format!("127.0.0.1:{port}"), &format!("localhost:{port}")]),
            100,
        );
        for host in ["127.0.0.1", "localhost", "LOCALHOST."] {
            let answer =
                send_request(&proxy, &format!("CONNECT {host}:{port} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nhello"), "{answer}");
        }
        for host in ["localhost:1", "other.invalid:443", "[::1]:443", "127.0.0.1:1"] {
            let answer = send_request(&proxy, &format!("CONNECT {host} HTTP/1.1\r\n\r\n")).await;
            assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("under [sandbox]"), "{answer}");
        }
        let named: Vec<_> = proxy.refusals().into_iter().map(|refusal| refusal.host).collect();
        assert_eq!(named, ["127.0.0.1:1", "::1", "localhost:1", "other.invalid"]);
        for wrong in
            ["GET http://localhost/ HTTP/1.1\r\n\r\n", "CONNECT localhost HTTP/1.1\r\n\r\n", "\0\r\n\r\n"]
        {
            assert!(send_request(&proxy, wrong).await.starts_with("HTTP/1.1 405 "), "{wrong}");
        }
        // The host name is allowed, but it resolves to an address that is not.
        let proxy = open("b", hosts(&[&format!("localhost:{port}")]), 100);
        send_request(&proxy, &format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n")).await;
        assert_eq!(proxy.refusals()[0].why, RefusalReason::InternalNetwork);
    }

    /// Allows the host that a refusal names, and checks that repeating the request then succeeds.
    #[tokio::test]
    async fn request_succeeds_after_allowing_the_host_named_in_its_proxy_refusal() {
        let directory = tempfile::tempdir().unwrap();
        let port = spawn_server(b"hello".to_vec()).await;
        let target = [format!("127.0.0.1:{port}"), format!("[::ffff:127.0.0.1]:{port}")];
        for (at, target) in target.iter().enumerate() {
            let request = format!("CONNECT {target} HTTP/1.1\r\n\r\n");
            let closed =
                SandboxProxy::open(&directory.path().join(format!("a{at}")), hosts(&[]), 100).unwrap();
            let advice = send_request(&closed, &request).await;
            let named = advice.split('"').nth(1).unwrap();
            let open =
                SandboxProxy::open(&directory.path().join(format!("b{at}")), hosts(&[named]), 100).unwrap();
            assert!(send_request(&open, &request).await.ends_with("hello"), "{advice}");
        }
        let advised = [("::1", 443), ("::1", 1), ("[::1]", 1), ("LOCALHOST.", 443), ("localhost", 1)];
        for (host, port) in advised {
            let shared = ProxyState::new(hosts(&[&format_host(host, port), "127.0.0.0/8", "::1/128"]), 0);
            assert!(shared.addresses(host, port).await.is_ok(), "{host} {port}");
        }
        let never = HostRefusal { host: "a\"b".to_owned(), why: RefusalReason::NotAllowed };
        assert!(!never.to_string().contains("hosts = "));
    }

    #[tokio::test]
    async fn proxied_connections_are_closed_at_the_transfer_limit() {
        let directory = tempfile::tempdir().unwrap();
        let port = spawn_server(vec![b'x'; 100_000]).await;
        let proxy =
            SandboxProxy::open(&directory.path().join("a"), hosts(&[&format!("127.0.0.1:{port}")]), 50_000)
                .unwrap();
        for _ in 0..2 {
            assert!(
                send_request(&proxy, &format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n")).await.len()
                    < 51_000
            );
        }
        assert_eq!(
            proxy.refusals().iter().map(|refusal| refusal.why).collect::<Vec<_>>(),
            [RefusalReason::TransferLimit]
        );
        // The third request is refused before connecting.
        let request = format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n");
        assert!(send_request(&proxy, &request).await.starts_with("HTTP/1.1 403 "));
    }
}
