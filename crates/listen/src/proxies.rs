//! Finds the client's address behind a trusted proxy.
//!
//! Limits are by address, and behind a proxy all devices have the proxy's. A proxy says in `X-Forwarded-For` for whom it speaks; so can anybody
//! else. So the word of those is taken whom the operator names ([`Proxies`]), and of nobody else: from the end of the list, which the last
//! proxy wrote, back to the first address that is no such proxy. A proxy that is trusted must add the address of its own client to the list,
//! or overwrite the list.
//!
//! Where a trusted proxy says nothing that can be read, or names this machine, which nobody limits, everybody whom it speaks for counts as
//! one address that nobody has: too few are let in then, and never too many.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    str::FromStr,
};

use axum::http::HeaderMap;
use thiserror::Error;

/// What proxies say for whom they speak in.
const FORWARDED_FOR: &str = "x-forwarded-for";
/// What all whose address cannot be told count as.
const NOBODYS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// An address, or a network of them: `192.0.2.7`, `10.0.0.0/8`, `2001:db8::/32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// Not a valid network.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is neither an address nor a network such as 10.0.0.0/8")]
pub struct NoNetwork {
    text: String,
}

impl FromStr for Network {
    type Err = NoNetwork;

    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let none = || NoNetwork { text: text.to_owned() };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| none())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| none())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        // A network of everybody would let anybody say where they are.
        if bits == 0 || bits > most { Err(none()) } else { Ok(Self { address, bits }) }
    }
}

impl Network {
    fn holds(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(32 - u32::from(self.bits)).is_none_or(|apart| apart == 0)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(128 - u32::from(self.bits)).is_none_or(|apart| apart == 0)
            }
            _ => false,
        }
    }
}

/// The proxies whose word is taken; nobody's by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies(Vec<Network>);

impl Proxies {
    /// Trusts these networks.
    #[must_use]
    pub const fn new(networks: Vec<Network>) -> Self {
        Self(networks)
    }

    /// Whether an address belongs to a trusted proxy.
    #[must_use]
    pub fn are_at(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.holds(address))
    }

    /// The address a request comes from, by its peer and its header.
    #[must_use]
    pub fn origin(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        if !self.are_at(peer) {
            return peer;
        }
        // Several fields are one list, in their order.
        for field in headers.get_all(FORWARDED_FOR).iter().rev() {
            let Ok(list) = field.to_str() else { return NOBODYS };
            for said in list.rsplit(',') {
                match address(said.trim()) {
                    None => return NOBODYS,
                    Some(said) if self.are_at(said) => {}
                    Some(said) if said.is_loopback() => return NOBODYS,
                    Some(said) => return said,
                }
            }
        }
        NOBODYS
    }
}

/// An address, with or without a port: some proxies write it.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(networks: &[&str]) -> Proxies {
        Proxies::new(networks.iter().map(|network| network.parse().unwrap()).collect())
    }

    fn origin(proxies: &Proxies, peer: &str, fields: &[&'static str]) -> String {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(FORWARDED_FOR, axum::http::HeaderValue::from_static(field));
        }
        proxies.origin(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn nobody_elses_word_is_taken() {
        for proxies in [Proxies::default(), proxies(&["192.0.2.7"])] {
            assert_eq!(origin(&proxies, "192.0.2.8", &["198.51.100.1"]), "192.0.2.8");
            assert_eq!(origin(&proxies, "127.0.0.1", &["198.51.100.1"]), "127.0.0.1");
        }
    }

    #[test]
    fn a_trusted_proxy_says_for_whom_it_speaks_and_what_others_wrote_before_it_does_not_count() {
        let proxies = proxies(&["127.0.0.1", "10.0.0.0/8", "2001:db8::/32"]);
        for (peer, fields, from) in [
            ("127.0.0.1", &["198.51.100.1"][..], "198.51.100.1"),
            ("::ffff:127.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("10.1.2.3", &["203.0.113.9, 198.51.100.1"], "198.51.100.1"),
            ("10.1.2.3", &["203.0.113.9", "198.51.100.1, 10.9.9.9"], "198.51.100.1"),
            ("2001:db8::1", &["[2001:db9::5]:443"], "2001:db9::5"),
            ("10.1.2.3", &["198.51.100.1:5678"], "198.51.100.1"),
            ("10.1.2.3", &["::ffff:198.51.100.1"], "198.51.100.1"),
        ] {
            assert_eq!(origin(&proxies, peer, fields), from, "{peer} {fields:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_counts_as_one_address() {
        let proxies = proxies(&["127.0.0.1"]);
        for fields in [&[][..], &[""], &["unknown"], &["198.51.100.1, "], &["198.51.100.1, _hidden"], &["127.0.0.1"]] {
            assert_eq!(origin(&proxies, "127.0.0.1", fields), "0.0.0.0", "{fields:?}");
        }
        assert_eq!(origin(&proxies, "127.0.0.1", &["::1"]), "0.0.0.0", "nobody limits this machine");
    }

    #[test]
    fn networks_are_read_or_refused() {
        for none in
            ["", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "::/0", "0.0.0.0/0", "2001:db8::/129", "host", "10.0.0/8"]
        {
            assert!(none.parse::<Network>().is_err(), "{none}");
        }
        let all = |network: &str, address: &str| proxies(&[network]).are_at(address.parse().unwrap());
        assert!(all("10.0.0.0/8", "10.255.0.1") && !all("10.0.0.0/8", "11.0.0.1"));
        assert!(all("192.0.2.0/31", "192.0.2.1") && !all("192.0.2.0/31", "192.0.2.2"));
        assert!(all("2001:db8::/33", "2001:db8::9") && !all("2001:db8::/33", "2001:db8:8000::9"));
        assert!(!all("10.0.0.0/8", "2001:db8::1"));
    }
}
