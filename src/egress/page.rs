//! Fetches a page with a GET request that contains no cookies, keys or other data of ours. The content of the page is
//! untrusted.

use std::{fmt, net::SocketAddr, time::Duration};

use reqwest::{
    Client, Response, StatusCode, Url,
    header::{ACCEPT, CONTENT_TYPE, LOCATION},
    redirect::Policy,
};
use tokio::time::timeout;

use super::{
    CONNECT_TIMEOUT, HostPolicy, HostRefusal, RefusalReason, format_host, normalize_name, parse_literal,
};
use crate::config::Hosts;

/// Maximum number of bytes that are read of a page.
pub const PAGE_BYTES: usize = 1 << 20;

/// Timeout of a fetch, including redirects.
const TIME: Duration = Duration::from_secs(30);

const REDIRECTS: usize = 5;

/// Maximum length of an address, in bytes.
const ADDRESS_BYTES: usize = 2000;

/// Text of a page, or its first [`PAGE_BYTES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedPage {
    pub text: String,
    pub html: bool,
    pub cut: bool,
}

/// Reason why a page was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageError {
    /// The address is malformed or too long, has user info, or uses another scheme than HTTP and HTTPS.
    Address,
    Host(HostRefusal),
    Status(u16),
    /// The content of the response is not text.
    Content,
    Redirects,
    /// The connection failed or timed out.
    Broken,
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("its address is not a plain http or https URL"),
            Self::Host(HostRefusal { host, why }) => match why {
                RefusalReason::NotAllowed => write!(f, "[fetch] does not allow {host}"),
                RefusalReason::AlwaysBlocked => write!(f, "{host} has an address that is always blocked"),
                RefusalReason::InternalNetwork => write!(f, "{host} is in an internal network"),
                RefusalReason::Unreachable | RefusalReason::TransferLimit => {
                    write!(f, "{host} does not answer")
                }
            },
            Self::Status(status) => write!(f, "it answers {status}"),
            Self::Content => f.write_str("it is not text"),
            Self::Redirects => f.write_str("it redirects too often"),
            Self::Broken => f.write_str("it does not answer"),
        }
    }
}

/// Returns the host of an address in the form in which the operator can add it to `hosts`. Returns `None` if the
/// address is invalid or is in an internal or blocked network.
pub fn allowable_host(address: &str) -> Option<String> {
    let url = parse_address(address).ok()?;
    let (host, port) = url.host_str().zip(url.port_or_known_default())?;
    let inside = |ip| HostPolicy(&Hosts::default()).check_address(SocketAddr::new(ip, port)).is_err();
    let is_itself = match parse_literal(host) {
        Some(ip) => !inside(ip),
        // The formatted name may be shorter than the name itself.
        None => format_host(host, 443) == normalize_name(host),
    };
    let host = Some(format_host(host, port)).filter(|_| is_itself)?;
    Hosts::try_from(vec![host.clone()]).ok().map(|_| host)
}

/// Fetches a page from one of these hosts. The target of each redirect is checked like the first address.
///
/// # Errors
/// Returns the reason why the page was not read.
pub async fn fetch_page(hosts: &Hosts, address: &str) -> Result<FetchedPage, PageError> {
    timeout(TIME, follow_redirects(hosts, address)).await.unwrap_or(Err(PageError::Broken))
}

async fn follow_redirects(hosts: &Hosts, address: &str) -> Result<FetchedPage, PageError> {
    let mut url = parse_address(address)?;
    for _ in 0..=REDIRECTS {
        let response = send_get(hosts, &url).await?;
        if !response.status().is_redirection() {
            return read_page(response).await;
        }
        let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok()).ok_or(PageError::Broken)?;
        url = parse_address(url.join(to).map_err(|_| PageError::Address)?.as_str())?;
    }
    Err(PageError::Redirects)
}

/// Parses an address with the library that also sends the request, so that the check and the request use the same host.
fn parse_address(address: &str) -> Result<Url, PageError> {
    let url = Url::parse(address).ok().filter(|_| address.len() <= ADDRESS_BYTES);
    let plain = |url: &Url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
    };
    url.filter(plain).ok_or(PageError::Address)
}

async fn send_get(hosts: &Hosts, url: &Url) -> Result<Response, PageError> {
    let (host, port) = (url.host_str(), url.port_or_known_default());
    let (host, port) = host.zip(port).ok_or(PageError::Address)?;
    let addresses = HostPolicy(hosts).resolve(host, port).await.map_err(PageError::Host)?;
    // Fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Connect to the checked addresses without resolving the name again.
    let client = Client::builder()
        .no_proxy()
        .redirect(Policy::none())
        .resolve_to_addrs(host, &addresses)
        .connect_timeout(CONNECT_TIMEOUT)
        .user_agent(concat!("countersign/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|_| PageError::Broken)?;
    let request = client.get(url.clone()).header(ACCEPT, "text/html, text/plain, text/*;q=0.5");
    request.send().await.map_err(|_| PageError::Broken)
}

async fn read_page(mut response: Response) -> Result<FetchedPage, PageError> {
    if response.status() != StatusCode::OK {
        return Err(PageError::Status(response.status().as_u16()));
    }
    let content = response.headers().get(CONTENT_TYPE).and_then(|content| content.to_str().ok());
    let content =
        content.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let html = matches!(content.as_str(), "text/html" | "application/xhtml+xml");
    if !html && !content.starts_with("text/") && content != "application/json" {
        return Err(PageError::Content);
    }
    let mut bytes = Vec::new();
    // Do not wait for the rest.
    while bytes.len() <= PAGE_BYTES
        && let Some(more) = response.chunk().await.map_err(|_| PageError::Broken)?
    {
        bytes.extend_from_slice(&more);
    }
    let cut = bytes.len() > PAGE_BYTES;
    bytes.truncate(PAGE_BYTES);
    Ok(FetchedPage { text: String::from_utf8_lossy(&bytes).into_owned(), html, cut })
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::{super::tests::hosts, *};

    /// Starts a server that answers each request with `answer(path, port)`; returns its port.
    async fn server(answer: fn(&str, u16) -> String) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut head = vec![0; 4096];
                    let read = stream.read(&mut head).await.unwrap();
                    let head = String::from_utf8_lossy(&head[..read]).into_owned();
                    assert!(
                        head.starts_with("GET ") && !head.to_lowercase().contains("authorization"),
                        "{head}"
                    );
                    let path = head.split(' ').nth(1).unwrap().to_owned();
                    let _ = stream.write_all(answer(&path, port).as_bytes()).await;
                    if path == "/endless" {
                        while stream.write_all(&[b'x'; 65536]).await.is_ok() {}
                    }
                });
            }
        });
        port
    }

    fn answered(path: &str, port: u16) -> String {
        let leads = |to: &str| format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
        let text = |kind: &str, text: &str| {
            format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{text}", text.len())
        };
        match path {
            "/" => text("text/html; charset=utf-8", "<p>weeks</p>"),
            "/plain" => text("text/plain", "weeks"),
            "/picture" => text("image/png", "weeks"),
            "/none" => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
            "/endless" => {
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 1073741824\r\n\r\n".to_owned()
            }
            "/on" => leads("/plain"),
            "/round" => leads("/round"),
            "/inside" => leads(&format!("http://localhost:{port}/")),
            "/metadata" => leads("http://169.254.169.254/latest/meta-data/"),
            "/other" => leads("http://127.0.0.1:1/"),
            "/file" => leads("file:///etc/passwd"),
            "/name" => leads(&format!("http://eve@127.0.0.1:{port}/")),
            _ => String::new(),
        }
    }

    #[tokio::test]
    async fn page_is_read_only_from_an_allowed_host() {
        let port = server(answered).await;
        let (named, none) = (hosts(&[&format!("127.0.0.1:{port}")]), Hosts::default());
        let at = |path: &str| format!("http://127.0.0.1:{port}{path}");
        let page = |text: &str, html| Ok(FetchedPage { text: text.to_owned(), html, cut: false });
        assert_eq!(fetch_page(&named, &at("/")).await, page("<p>weeks</p>", true));
        assert_eq!(fetch_page(&named, &at("/plain#part")).await, page("weeks", false));
        assert_eq!(fetch_page(&named, &at("/on")).await, page("weeks", false));
        let long = fetch_page(&named, &at("/endless")).await.unwrap();
        assert_eq!((long.text.len(), long.cut), (PAGE_BYTES, true));
        for (path, why) in [
            ("/picture", PageError::Content),
            ("/none", PageError::Status(404)),
            ("/round", PageError::Redirects),
            ("/file", PageError::Address),
            ("/name", PageError::Address),
            ("/broken", PageError::Broken),
        ] {
            assert_eq!(fetch_page(&named, &at(path)).await, Err(why), "{path}");
        }
        for (path, host, why) in [
            ("/inside", format!("localhost:{port}"), RefusalReason::NotAllowed),
            ("/metadata", "169.254.169.254:80".to_owned(), RefusalReason::AlwaysBlocked),
            ("/other", "127.0.0.1:1".to_owned(), RefusalReason::NotAllowed),
        ] {
            assert_eq!(
                fetch_page(&named, &at(path)).await,
                Err(PageError::Host(HostRefusal { host, why })),
                "{path}"
            );
        }
        // An allowed name that resolves to an internal address is refused.
        let inside =
            fetch_page(&hosts(&[&format!("localhost:{port}")]), &format!("http://localhost:{port}/")).await;
        assert!(
            matches!(inside, Err(PageError::Host(HostRefusal { why: RefusalReason::InternalNetwork, .. }))),
            "{inside:?}"
        );
        assert!(matches!(fetch_page(&none, &at("/")).await, Err(PageError::Host(_))));
    }

    #[tokio::test]
    async fn unusual_spellings_of_blocked_addresses_are_refused() {
        let named = hosts(&["example.org", "example.org:80"]);
        for address in [
            "ftp://example.org/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "gopher://example.org",
            "https://eve@example.org/",
            "https://eve:secret@example.org/",
            "https:///",
            "example.org",
            "",
        ] {
            assert_eq!(fetch_page(&named, address).await, Err(PageError::Address), "{address}");
        }
        assert_eq!(
            fetch_page(&named, &format!("https://example.org/{}", "a".repeat(3000))).await,
            Err(PageError::Address)
        );
        let hosts_of = |hosts: Hosts| async move {
            let mut whys = Vec::new();
            for host in [
                ("2130706433", "127.0.0.1:80"),
                ("0x7f000001", "127.0.0.1:80"),
                ("0x7f.1", "127.0.0.1:80"),
                ("0177.0.0.1", "127.0.0.1:80"),
                ("127.1", "127.0.0.1:80"),
                ("[::1]", "[::1]:80"),
                ("[::ffff:127.0.0.1]", "[::ffff:127.0.0.1]:80"),
                ("[::ffff:7f00:1]", "[::ffff:127.0.0.1]:80"),
                ("169.254.169.254", "169.254.169.254:80"),
                ("2852039166", "169.254.169.254:80"),
                ("[::ffff:169.254.169.254]", "[::ffff:169.254.169.254]:80"),
                ("[fe80::1]", "[fe80::1]:80"),
                ("10.0.0.1", "10.0.0.1:80"),
                ("0", "0.0.0.0:80"),
                ("192.168.0.1", "192.168.0.1:80"),
                ("%31%32%37.0.0.1", "127.0.0.1:80"),
                ("１２７.0.0.1", "127.0.0.1:80"),
                ("localhost", "localhost:80"),
                ("example.org.evil.example", "example.org.evil.example:80"),
            ] {
                match fetch_page(&hosts, &format!("http://{}/", host.0)).await {
                    Err(PageError::Host(refusal)) => {
                        assert_eq!(refusal.host, host.1, "{}", host.0);
                        whys.push((host.0, refusal.why));
                    }
                    other => panic!("{host:?}: {other:?}"),
                }
            }
            whys
        };
        for (host, why) in hosts_of(named).await {
            assert!(
                matches!(why, RefusalReason::NotAllowed | RefusalReason::AlwaysBlocked),
                "{host}: {why:?}"
            );
        }
    }

    #[test]
    fn host_can_be_allowed_only_if_it_is_public() {
        for (address, host) in [
            ("https://Weeks.example/a", Some("weeks.example")),
            ("http://weeks.example/a", Some("weeks.example:80")),
            ("https://93.184.216.34/", Some("93.184.216.34")),
            ("http://2130706433/", None),
            ("http://10.0.0.1:8080/", None),
            ("http://169.254.169.254/", None),
            ("https://[::ffff:10.0.0.1]/", None),
            ("https://a`b.example/", None),
            ("https://a\u{22}].example/", None),
            ("ftp://weeks.example", None),
        ] {
            assert_eq!(allowable_host(address).as_deref(), host, "{address}");
        }
    }
}
