//! `[sandbox]`: how untrusted commands run.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de::Error as _};

/// Isolation level of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxLevel {
    /// The command is not isolated. Only its environment is cleared, and its time and memory are limited.
    None,
    /// The command runs as another user, confined by Landlock and without sockets.
    Basic,
    /// The command is confined as with `Basic`, and also runs in separate namespaces.
    Full,
}

impl SandboxLevel {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Basic => "basic",
            Self::Full => "full",
        }
    }
}

/// The `[sandbox]` table.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxSettings {
    /// Required isolation level. If `None`, the strictest level that works is used; if only `none` works, this is an
    /// error.
    pub level: Option<SandboxLevel>,
    /// Hosts from which dependencies may be fetched; none by default.
    pub hosts: Hosts,
    /// Folder whose files are placed in the home directory of programs that fetch dependencies. For example, the folder
    /// can hold settings that name a mirror.
    #[serde(deserialize_with = "folder")]
    pub home: Option<PathBuf>,
    /// Countersign executable that runs as the first stage inside the sandbox; `None` for the executable of this
    /// process.
    #[serde(skip)]
    pub program: Option<PathBuf>,
    /// Timeout of one test run; `None` for the default.
    #[serde(skip)]
    pub time: Option<Duration>,
}

/// `[fetch]`: web pages that may be read in addition to GitHub's.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FetchSettings {
    /// Hosts of the additional pages; empty by default.
    pub hosts: Hosts,
}

fn folder<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    let path = PathBuf::deserialize(from)?;
    if path.is_absolute() && path.is_dir() {
        return Ok(Some(path));
    }
    Err(D::Error::custom(format!(
        "`{}` under [sandbox] home is not the absolute path of a folder",
        path.display()
    )))
}

/// Hosts of a `hosts` list. Each name or address has a port, by default 443. Networks can be reached only on port 443.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Hosts {
    pub names: Vec<(String, u16)>,
    pub addresses: Vec<SocketAddr>,
    pub networks: Vec<IpNet>,
}

/// Writes the hosts separated by commas, in the notation of the settings.
impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names.iter().map(|(name, port)| match port {
            443 => name.clone(),
            port => format!("{name}:{port}"),
        });
        let addresses = self.addresses.iter().map(ToString::to_string);
        let all = names.chain(addresses).chain(self.networks.iter().map(ToString::to_string));
        f.write_str(&all.collect::<Vec<_>>().join(", "))
    }
}

impl TryFrom<Vec<String>> for Hosts {
    type Error = String;

    fn try_from(texts: Vec<String>) -> Result<Self, String> {
        let mut hosts = Self::default();
        for text in texts {
            hosts.add(&text)?;
        }
        Ok(hosts)
    }
}

impl Hosts {
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.addresses.is_empty() && self.networks.is_empty()
    }

    /// Adds one entry of the list. The entry is `name`, `name:port`, an address, `address:port` (`[address]:port` for
    /// IPv6), or a network such as `10.1.0.0/16`.
    fn add(&mut self, text: &str) -> Result<(), String> {
        if let Ok(address) = text.parse() {
            self.addresses.push(address);
            return Ok(());
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            self.networks.push(address.into());
            return Ok(());
        }
        if let Ok(network) = text.parse() {
            self.networks.push(network);
            return Ok(());
        }
        let (name, port) = text.rsplit_once(':').map_or((text, Ok(443)), |(name, port)| (name, port.parse()));
        let label = |l: &str| {
            !l.is_empty() && l.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        match port {
            Ok(port) if name.split('.').all(label) => self.names.push((name.to_ascii_lowercase(), port)),
            _ => {
                return Err(format!(
                    "`{text}` under hosts is neither a host (`example.org`, `10.0.0.5:8443`, `[fd12::5]:8443`) \
                     nor a network (`10.1.0.0/16`)"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_hosts_are_displayed_as_written_in_the_settings() {
        let written = ["a.b", "c.d:1", "10.0.0.5:8443", "[fd12::5]:8443", "10.1.0.0/16"];
        let hosts = Hosts::try_from(written.map(str::to_owned).to_vec()).unwrap();
        assert_eq!(hosts.to_string(), written.join(", "));
    }

    #[test]
    fn sandbox_home_must_be_an_existing_directory() {
        let read = |home: &str| toml::from_str::<SandboxSettings>(&format!("home = \"{home}\""));
        assert_eq!(read("/").unwrap().home, Some("/".into()));
        for home in ["", "src", "/dev/null", "/none/such"] {
            let error = read(home).unwrap_err();
            assert!(error.message().contains(&format!("`{home}` under [sandbox] home")), "{error}");
        }
    }

    #[test]
    fn invalid_host_is_refused_with_a_one_line_error() {
        for text in
            ["", "a b", "http://a.b", "a.b:x", "*.a.b", "a..b", "a.b/c", "a.b:70000", "[a.b]", "[::1]:x"]
        {
            let error = Hosts::try_from(vec!["a.b".to_owned(), text.to_owned()]).unwrap_err();
            assert!(error.contains(&format!("`{text}`")) && !error.contains('\n'));
        }
    }
}
