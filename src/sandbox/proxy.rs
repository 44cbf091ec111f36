//! The one way out of a sandbox: a proxy that connects to the hosts that the operator named, and to no other.
//!
//! It speaks `CONNECT` alone, so it sees names and no contents. It resolves names itself and looks at what they lead to: a
//! name that may be asked for could lead into the company's own network, or to what tells a machine its credentials.

use std::{
    collections::BTreeSet,
    fmt, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    str::FromStr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ipnet::IpNet;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixListener, UnixStream, lookup_host},
    sync::Semaphore,
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::config::Hosts;

/// What one command may fetch and send in all.
pub const FETCHED_BYTES: u64 = 4 << 30;

/// Connections at once; package managers use a dozen.
const CONNECTIONS: usize = 64;

/// A request line and its headers, which nobody needs to be long.
const HEAD_BYTES: usize = 8 << 10;

/// Until a request is there, and until a host answers.
const PATIENCE: Duration = Duration::from_secs(20);

/// Refusals that are kept to be told; whoever asks for more hosts than that is not installing anything.
const REFUSALS: usize = 20;

/// Never connected to, whatever the operator names: they tell a machine in a cloud its credentials, or are the machine's own
/// neighbours, or nobody's.
const NEVER: [&str; 14] = [
    "100.100.100.200/32",
    "168.63.129.16/32",
    "192.0.0.192/32",
    "fd00:ec2::254/128",
    "fd20:ce::254/128",
    "fd00:c1::a9fe:a9fe/128",
    "fd00:42::42/128",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "255.255.255.255/32",
    "0.0.0.0/32",
    "fe80::/10",
    "ff00::/8",
    "::/128",
];

/// Connected to only where the operator names the address or its network, and not by a name alone.
const INNER: [&str; 13] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "240.0.0.0/4",
    "::1/128",
    "64:ff9b:1::/48",
    "fc00::/7",
    "fec0::/10",
];

impl Shared {
    fn new(hosts: Hosts, bytes: u64) -> Self {
        Self { hosts, refused: Mutex::default(), left: bytes.into(), spent: CancellationToken::new() }
    }

    /// May this address be connected to, where its name may be?
    fn judged(&self, address: SocketAddr) -> Result<(), Why> {
        match meant(address.ip()) {
            ip if in_one(ip, &NEVER) => Err(Why::Never),
            ip if in_one(ip, &INNER) && !self.names(address) && !self.names_network(ip) => Err(Why::Inside),
            _ => Ok(()),
        }
    }

    /// Did the operator name that very address and port?
    fn names(&self, address: SocketAddr) -> bool {
        let mut all = self.hosts.addresses.iter();
        all.any(|named| meant(named.ip()) == meant(address.ip()) && named.port() == address.port())
    }

    fn names_network(&self, address: IpAddr) -> bool {
        self.hosts.networks.iter().any(|network| network.contains(&address))
    }

    /// The addresses of what was asked for, as far as they may be connected to.
    async fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Refusal> {
        let refusal = |why| Refusal { host: shown(host, port), why };
        if let Some(address) = literal(host) {
            let address = SocketAddr::new(address, port);
            // A network is named for what names lead to; each other port of each machine in it would be open besides.
            let named = self.names(address) || (port == 443 && self.names_network(meant(address.ip())));
            return match self.judged(address) {
                Err(Why::Never) => Err(refusal(Why::Never)),
                Ok(()) if named => Ok(vec![address]),
                _ => Err(refusal(Why::NotNamed)),
            };
        }
        let name = plain(host);
        if !self.hosts.names.contains(&(name.clone(), port)) {
            return Err(refusal(Why::NotNamed));
        }
        let found = timeout(PATIENCE, lookup_host((name.as_str(), port))).await;
        let found: Vec<_> = found.ok().and_then(Result::ok).ok_or_else(|| refusal(Why::Unknown))?.collect();
        let (taken, refused): (Vec<_>, Vec<_>) =
            found.into_iter().map(|address| self.judged(address).map(|()| address)).partition(Result::is_ok);
        let why = refused.into_iter().filter_map(Result::err).max().unwrap_or(Why::Unknown);
        if taken.is_empty() { Err(refusal(why)) } else { Ok(taken.into_iter().flatten().collect()) }
    }
}

/// The address that is reached in the end: some of IPv6 lead, by one road or another, to one of IPv4 that is written in them.
fn meant(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => address,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low)).into(),
        _ => address,
    }
}

fn in_one(address: IpAddr, networks: &[&str]) -> bool {
    networks.iter().any(|text| IpNet::from_str(text).is_ok_and(|network| network.contains(&address)))
}

fn literal(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

fn plain(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// As it would be named under `hosts`.
fn shown(host: &str, port: u16) -> String {
    match (literal(host), port) {
        (Some(address), 443) => return address.to_string(),
        (Some(address), _) => return SocketAddr::new(address, port).to_string(),
        (None, _) => {}
    }
    let host: String = plain(host).chars().filter(|c| c.is_ascii_graphic() && *c != '`').take(253).collect();
    if port == 443 { host } else { format!("{host}:{port}") }
}

/// A host that was asked for and not reached.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    pub host: String,
    pub why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The operator did not name it.
    NotNamed,
    /// It leads to what is never reached.
    Never,
    /// It leads into a network that the operator did not name.
    Inside,
    /// There is no such host, or it does not answer.
    Unknown,
    /// All that may be fetched was fetched before.
    TooMuch,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, why } = self;
        match why {
            Why::NotNamed if Hosts::try_from(vec![host.clone()]).is_err() => {
                write!(f, "`{host}` is no host that can be named under [sandbox]")
            }
            Why::NotNamed => write!(
                f,
                "`{host}` may not be reached; `--host {host}` allows it here, and `hosts = [\"{host}\"]` under [sandbox] in the server's settings"
            ),
            Why::Never => write!(f, "`{host}` leads to what is never reached, whatever is named"),
            Why::Inside => write!(
                f,
                "`{host}` leads into a network of its own; its addresses must be named, too (`--host`, or `hosts` under [sandbox])"
            ),
            Why::Unknown => write!(f, "`{host}` does not answer"),
            Why::TooMuch => write!(f, "`{host}` was asked for more than may be fetched in all"),
        }
    }
}

/// A way out that is open as long as this lives.
#[derive(Debug)]
pub struct Proxy {
    socket: PathBuf,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    hosts: Hosts,
    refused: Mutex<BTreeSet<Refusal>>,
    /// Bytes that may still go through, both ways together.
    left: AtomicU64,
    spent: CancellationToken,
}

impl Proxy {
    /// Listens at a socket of this name, for `bytes` in all.
    ///
    /// # Errors
    ///
    /// When there can be no such socket.
    pub fn open(socket: &Path, hosts: Hosts, bytes: u64) -> io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        let shared = Arc::new(Shared::new(hosts, bytes));
        let serving = tokio::spawn(Arc::clone(&shared).serve(listener));
        Ok(Self { socket: socket.to_owned(), shared, serving })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// What was asked for and not reached, as far as it is kept.
    pub fn refused(&self) -> Vec<Refusal> {
        self.shared.refused.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl Drop for Proxy {
    /// Its connections end with it.
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Shared {
    async fn serve(self: Arc<Self>, listener: UnixListener) {
        let (room, mut open) = (Arc::new(Semaphore::new(CONNECTIONS)), JoinSet::new());
        loop {
            while open.try_join_next().is_some() {}
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((client, _)) => {
                    let shared = Arc::clone(&self);
                    open.spawn(async move {
                        let _ = shared.answer(client).await;
                        drop(permit);
                    });
                }
                // Out of file descriptors, for example; some come back.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    async fn answer(&self, mut client: UnixStream) -> io::Result<()> {
        let asked = timeout(PATIENCE, head(&mut client)).await;
        let Some((host, port)) = asked.ok().and_then(Result::ok).as_deref().and_then(target) else {
            return client.write_all(b"HTTP/1.1 405 Only CONNECT\r\ncontent-length: 0\r\n\r\n").await;
        };
        match self.reached(&host, port).await {
            Ok(mut server) => {
                client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await?;
                tokio::select! {
                    biased;
                    () = self.spent.cancelled() => {
                        self.refuse(Refusal { host: shown(&host, port), why: Why::TooMuch });
                        Ok(())
                    }
                    done = self.carried(&mut client, &mut server) => done,
                }
            }
            Err(refusal) => {
                let line = format!(
                    "HTTP/1.1 403 Refused\r\ncontent-length: {}\r\n\r\n{refusal}\n",
                    refusal.to_string().len() + 1
                );
                self.refuse(refusal);
                client.write_all(line.as_bytes()).await
            }
        }
    }

    async fn reached(&self, host: &str, port: u16) -> Result<TcpStream, Refusal> {
        if self.spent.is_cancelled() {
            return Err(Refusal { host: shown(host, port), why: Why::TooMuch });
        }
        let addresses = self.addresses(host, port).await?;
        let connected = timeout(PATIENCE, TcpStream::connect(addresses.as_slice())).await;
        connected
            .ok()
            .and_then(Result::ok)
            .ok_or_else(|| Refusal { host: shown(host, port), why: Why::Unknown })
    }

    fn refuse(&self, refusal: Refusal) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() < REFUSALS {
            refused.insert(refusal);
        }
    }

    async fn carried(&self, client: &mut UnixStream, server: &mut TcpStream) -> io::Result<()> {
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        tokio::try_join!(self.copied(from_client, to_server), self.copied(from_server, to_client)).map(drop)
    }

    async fn copied(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let mut room = vec![0; 16 << 10];
        loop {
            let read = from.read(&mut room).await?;
            if read == 0 {
                return to.shutdown().await;
            }
            let less = |left: u64| left.checked_sub(read as u64);
            if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_err() {
                self.spent.cancel();
                return Ok(());
            }
            to.write_all(&room[..read]).await?;
        }
    }
}

/// Up to the empty line after the headers. Nothing follows it before the answer.
async fn head(client: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_BYTES {
        head.push(client.read_u8().await?);
    }
    Ok(head)
}

/// Host and port of `CONNECT host:port HTTP/1.1`.
fn target(head: &[u8]) -> Option<(String, u16)> {
    let line = std::str::from_utf8(head).ok()?.lines().next()?;
    let [method, target, version] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
    let (host, port) = target.rsplit_once(':')?;
    (method == "CONNECT" && version.starts_with("HTTP/1.")).then_some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn hosts(all: &[&str]) -> Hosts {
        all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>().try_into().unwrap()
    }

    /// May it be connected to where these are named?
    fn takes(all: &[&str], address: &str) -> bool {
        Shared::new(hosts(all), 0).judged((address.parse::<IpAddr>().unwrap(), 443).into()).is_ok()
    }

    #[test]
    fn metadata_and_neighbours_are_never_reached_and_inner_networks_only_if_named() {
        let all = ["0.0.0.0/0", "::/0"];
        for never in [
            "169.254.169.254",
            "fe80::1",
            "100.100.100.200",
            "168.63.129.16",
            "fd00:ec2::254",
            "0.0.0.0",
            "::",
            "::ffff:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "fd00:42::42",
            "192.0.0.192",
            "224.0.0.1",
            "255.255.255.255",
            "ff02::1",
        ] {
            assert!(!takes(&all, never), "{never}");
        }
        for inner in [
            "127.0.0.1",
            "::1",
            "10.1.2.3",
            "192.168.0.1",
            "172.16.0.1",
            "100.64.0.1",
            "fd12::1",
            "::ffff:10.1.2.3",
            "64:ff9b::a01:203",
            "::10.1.2.3",
            "2002:a01:203::1",
            "64:ff9b:1::1",
            "fec0::1",
            "198.18.0.1",
            "192.0.0.1",
            "240.0.0.1",
            "0.1.2.3",
        ] {
            assert!(!takes(&["a.b"], inner) && takes(&all, inner), "{inner}");
        }
        assert!(takes(&[], "93.184.216.34") && takes(&[], "64:ff9b::5db8:d822"));
        assert!(takes(&["10.1.0.0/16"], "10.1.2.3"));
    }

    /// Somebody who sends that to whoever connects.
    async fn somebody(says: Vec<u8>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(&says).await;
            }
        });
        port
    }

    async fn said(proxy: &Proxy, request: &str) -> String {
        let mut client = UnixStream::connect(proxy.socket()).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        let mut all = Vec::new();
        let _ = client.read_to_end(&mut all).await;
        String::from_utf8_lossy(&all).into_owned()
    }

    #[tokio::test]
    async fn it_reaches_what_is_named_and_says_what_it_does_not_reach() {
        let directory = tempfile::tempdir().unwrap();
        let port = somebody(b"hello".to_vec()).await;
        let open = |name: &str, hosts: Hosts, bytes| {
            Proxy::open(&directory.path().join(name), hosts, bytes).unwrap()
        };
        let proxy = open(
            "a",
            hosts(&["127.0.0.0/8", &format!("127.0.0.1:{port}"), &format!("localhost:{port}")]),
            100,
        );
        for host in ["127.0.0.1", "localhost", "LOCALHOST."] {
            let answer = said(&proxy, &format!("CONNECT {host}:{port} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nhello"), "{answer}");
        }
        for host in ["localhost:1", "other.invalid:443", "[::1]:443", "127.0.0.1:1"] {
            let answer = said(&proxy, &format!("CONNECT {host} HTTP/1.1\r\n\r\n")).await;
            assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("under [sandbox]"), "{answer}");
        }
        let named: Vec<_> = proxy.refused().into_iter().map(|refusal| refusal.host).collect();
        assert_eq!(named, ["127.0.0.1:1", "::1", "localhost:1", "other.invalid"]);
        for wrong in
            ["GET http://localhost/ HTTP/1.1\r\n\r\n", "CONNECT localhost HTTP/1.1\r\n\r\n", "\0\r\n\r\n"]
        {
            assert!(said(&proxy, wrong).await.starts_with("HTTP/1.1 405 "), "{wrong}");
        }
        // A name that is allowed leads where nothing is.
        let proxy = open("b", hosts(&[&format!("localhost:{port}")]), 100);
        said(&proxy, &format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n")).await;
        assert_eq!(proxy.refused()[0].why, Why::Inside);
    }

    /// Whoever follows the advice gets what was asked for.
    #[tokio::test]
    async fn what_is_advised_works() {
        let directory = tempfile::tempdir().unwrap();
        let port = somebody(b"hello".to_vec()).await;
        let asked = [format!("127.0.0.1:{port}"), format!("[::ffff:127.0.0.1]:{port}")];
        for (at, asked) in asked.iter().enumerate() {
            let request = format!("CONNECT {asked} HTTP/1.1\r\n\r\n");
            let closed = Proxy::open(&directory.path().join(format!("a{at}")), hosts(&[]), 100).unwrap();
            let advice = said(&closed, &request).await;
            let named = advice.split('"').nth(1).unwrap();
            let open = Proxy::open(&directory.path().join(format!("b{at}")), hosts(&[named]), 100).unwrap();
            assert!(said(&open, &request).await.ends_with("hello"), "{advice}");
        }
        let advised = [("::1", 443), ("::1", 1), ("[::1]", 1), ("LOCALHOST.", 443), ("localhost", 1)];
        for (host, port) in advised {
            let shared = Shared::new(hosts(&[&shown(host, port), "127.0.0.0/8", "::1/128"]), 0);
            assert!(shared.addresses(host, port).await.is_ok(), "{host} {port}");
        }
        let never = Refusal { host: "a\"b".to_owned(), why: Why::NotNamed };
        assert!(!never.to_string().contains("hosts = "));
    }

    #[tokio::test]
    async fn no_more_goes_through_than_may() {
        let directory = tempfile::tempdir().unwrap();
        let port = somebody(vec![b'x'; 100_000]).await;
        let proxy =
            Proxy::open(&directory.path().join("a"), hosts(&[&format!("127.0.0.1:{port}")]), 50_000).unwrap();
        for _ in 0..2 {
            assert!(said(&proxy, &format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n")).await.len() < 51_000);
        }
        assert_eq!(proxy.refused().iter().map(|refusal| refusal.why).collect::<Vec<_>>(), [Why::TooMuch]);
        // The third is told before anybody is connected to.
        let request = format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n");
        assert!(said(&proxy, &request).await.starts_with("HTTP/1.1 403 "));
    }
}
