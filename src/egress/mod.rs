//! Outbound connections: the policy for reachable hosts, and the fetching of pages.
//!
//! Only hosts that the operator allows can be reached. A host name is resolved, its addresses are checked, and a
//! connection is made only to a checked address. Otherwise a name could lead into the internal network, or to a cloud
//! metadata service that returns credentials.

mod page;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    str::FromStr,
    time::Duration,
};

use ipnet::IpNet;
use tokio::{net::lookup_host, time::timeout};

pub use page::{FetchedPage, PAGE_BYTES, PageError, allowable_host, fetch_page};

use crate::config::Hosts;

/// Timeout for resolving a name. Also the timeout for connecting to a host.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Networks that are always blocked, even if the operator allows them: cloud metadata services, link-local, multicast,
/// broadcast and unspecified addresses.
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

/// Internal networks. They can be reached only if the operator allows the address or its network. Allowing a host name
/// is not enough.
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

/// Policy for outbound connections.
#[derive(Debug, Clone, Copy)]
pub struct HostPolicy<'h>(pub &'h Hosts);

impl HostPolicy<'_> {
    /// Checks whether this address may be reached. The caller has checked that its host name is allowed.
    fn check_address(&self, address: SocketAddr) -> Result<(), RefusalReason> {
        match effective_address(address.ip()) {
            ip if is_in_any(ip, &NEVER) => Err(RefusalReason::AlwaysBlocked),
            ip if is_in_any(ip, &INNER) && !self.allows_address(address) && !self.allows_network(ip) => {
                Err(RefusalReason::InternalNetwork)
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the operator allows this exact address and port.
    fn allows_address(&self, address: SocketAddr) -> bool {
        let mut all = self.0.addresses.iter();
        all.any(|named| {
            effective_address(named.ip()) == effective_address(address.ip()) && named.port() == address.port()
        })
    }

    fn allows_network(&self, address: IpAddr) -> bool {
        self.0.networks.iter().any(|network| network.contains(&address))
    }

    /// Resolves a host and returns those of its addresses that may be reached.
    ///
    /// # Errors
    /// Returns the reason why no address may be reached.
    pub async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, HostRefusal> {
        let refusal = |why| HostRefusal { host: format_host(host, port), why };
        if let Some(address) = parse_literal(host) {
            let address = SocketAddr::new(address, port);
            // A network is allowed as a target of names. Otherwise every port of every machine in it would be open.
            let named = self.allows_address(address)
                || (port == 443 && self.allows_network(effective_address(address.ip())));
            return match self.check_address(address) {
                Err(RefusalReason::AlwaysBlocked) => Err(refusal(RefusalReason::AlwaysBlocked)),
                Ok(()) if named => Ok(vec![address]),
                _ => Err(refusal(RefusalReason::NotAllowed)),
            };
        }
        let name = normalize_name(host);
        if !self.0.names.contains(&(name.clone(), port)) {
            return Err(refusal(RefusalReason::NotAllowed));
        }
        let found = timeout(CONNECT_TIMEOUT, lookup_host((name.as_str(), port))).await;
        let found: Vec<_> =
            found.ok().and_then(Result::ok).ok_or_else(|| refusal(RefusalReason::Unreachable))?.collect();
        let (taken, refused): (Vec<_>, Vec<_>) = found
            .into_iter()
            .map(|address| self.check_address(address).map(|()| address))
            .partition(Result::is_ok);
        let why = refused.into_iter().filter_map(Result::err).max().unwrap_or(RefusalReason::Unreachable);
        if taken.is_empty() { Err(refusal(why)) } else { Ok(taken.into_iter().flatten().collect()) }
    }
}

/// Returns the address that packets finally reach. For an IPv6 address with an embedded IPv4 address, this is the IPv4
/// address; otherwise it is the address itself.
fn effective_address(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    match v6.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => address,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low)).into(),
        _ => address,
    }
}

fn is_in_any(address: IpAddr, networks: &[&str]) -> bool {
    networks.iter().any(|text| IpNet::from_str(text).is_ok_and(|network| network.contains(&address)))
}

fn parse_literal(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

fn normalize_name(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// Formats a host as the operator would write it in `hosts`.
pub fn format_host(host: &str, port: u16) -> String {
    match (parse_literal(host), port) {
        (Some(address), 443) => return address.to_string(),
        (Some(address), _) => return SocketAddr::new(address, port).to_string(),
        (None, _) => {}
    }
    let host: String =
        normalize_name(host).chars().filter(|c| c.is_ascii_graphic() && *c != '`').take(253).collect();
    if port == 443 { host } else { format!("{host}:{port}") }
}

/// A host that was requested but not reached, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostRefusal {
    pub host: String,
    pub why: RefusalReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalReason {
    /// The operator does not allow the host.
    NotAllowed,
    /// The host resolves to a network that is always blocked.
    AlwaysBlocked,
    /// The host resolves to an internal network that the operator does not allow.
    InternalNetwork,
    /// The host does not exist or does not respond.
    Unreachable,
    /// The limit on transferred data is exhausted.
    TransferLimit,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn hosts(all: &[&str]) -> Hosts {
        all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>().try_into().unwrap()
    }

    /// Returns whether `address` may be reached if the operator allows the hosts in `all`.
    fn takes(all: &[&str], address: &str) -> bool {
        HostPolicy(&hosts(all)).check_address((address.parse::<IpAddr>().unwrap(), 443).into()).is_ok()
    }

    #[test]
    fn metadata_addresses_are_blocked_and_internal_addresses_need_an_allow_entry() {
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
}
