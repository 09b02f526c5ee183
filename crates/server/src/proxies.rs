//! Reverse proxies that are trusted, and what their headers tell of the client: `X-Forwarded-For` and `Forwarded`
//! (RFC 7239).
//!
//! Each proxy appends the address that it sees. Only what trusted proxies wrote counts: the list is read from its
//! end, up to the first address that is no trusted proxy's. What a client wrote itself stands before that.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

const LIST: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED: HeaderName = HeaderName::from_static("forwarded");
/// Most trusted proxies in a row.
const HOPS: usize = 32;
/// Longest value of `Forwarded` that is read. Quotes make sense only from the beginning on.
const FORWARDED_BYTES: usize = 8 << 10;
/// So much of a wrong value is told.
const TOLD_BYTES: usize = 100;

/// An address, or all addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    bits: u32,
}

impl Network {
    fn contains(self, address: IpAddr) -> bool {
        self.first == first_of(address.to_canonical(), self.bits)
            && self.first.is_ipv4() == address.to_canonical().is_ipv4()
    }
}

/// The address with all but its first bits cleared.
fn first_of(address: IpAddr, bits: u32) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(bits)).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no address and no network");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let written: IpAddr = address.parse().map_err(|_| wrong())?;
        let first = written.to_canonical();
        let most = |address: IpAddr| if address.is_ipv4() { 32_u32 } else { 128 };
        let bits = match bits {
            None => most(first),
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                let bits: u32 = bits.parse().map_err(|_| wrong())?;
                let left = most(written).checked_sub(bits).ok_or_else(wrong)?;
                most(first).saturating_sub(left)
            }
            Some(_) => return Err(wrong()),
        };
        if bits == 0 {
            return Err(format!("{text:?} is everybody, who could then claim any address"));
        }
        let cleared = first_of(first, bits);
        if cleared != first {
            return Err(format!("{text:?} has more than {bits} bits: write {cleared}/{bits}"));
        }
        Ok(Self { first, bits })
    }
}

/// The proxies that the settings name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Proxies(Arc<[Network]>);

/// What an entry of a header says of who came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hop {
    Address(SocketAddr),
    /// The proxy does not tell.
    Hidden,
}

/// Why it cannot be told for whom a trusted proxy asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unclear {
    /// What stands where an address should.
    Value(HeaderName, String),
    /// There are more than [`HOPS`] trusted proxies in the header.
    Hops(HeaderName),
    /// The two headers name different clients: one of them may be the client's own.
    Differ,
}

impl fmt::Display for Unclear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(header, value) => write!(
                f,
                "{header} has {value:?} where the client's address should stand: the last trusted proxy must append \
                 the address that it sees, or set the header to it"
            ),
            Self::Hops(header) => write!(
                f,
                "{header} names more than {HOPS} trusted proxies in a row: the last of them must set the header anew"
            ),
            Self::Differ => f.write_str(
                "Forwarded and X-Forwarded-For name different clients: the proxy must set one of them, and remove the other",
            ),
        }
    }
}

impl Proxies {
    pub(crate) fn new(networks: &[Network]) -> Self {
        Self(networks.into())
    }

    /// Whether the word of who has this address is taken.
    pub(crate) fn trust(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Who asks, where `peer` hands a request over with these headers. The port is 0 if none is told. It is a trusted proxy's own
    /// address if none tells more.
    pub(crate) fn client(
        &self,
        peer: SocketAddr,
        headers: &HeaderMap,
    ) -> Result<SocketAddr, Unclear> {
        if !self.trust(peer.ip()) {
            return Ok(peer);
        }
        let lists = headers.get_all(LIST).iter().rev();
        let list =
            lists.flat_map(|value| value.as_bytes().rsplit(|byte| *byte == b',')).map(of_list);
        let forwarded = headers.get_all(FORWARDED).iter().rev().flat_map(of_forwarded);
        match (headers.contains_key(LIST), headers.contains_key(FORWARDED)) {
            (false, false) => Ok(peer),
            (true, false) => self.last_untrusted(peer, list, LIST),
            (false, true) => self.last_untrusted(peer, forwarded, FORWARDED),
            (true, true) => {
                let list = self.last_untrusted(peer, list, LIST)?;
                let forwarded = self.last_untrusted(peer, forwarded, FORWARDED)?;
                if list.ip() != forwarded.ip() {
                    return Err(Unclear::Differ);
                }
                Ok(if list.port() == 0 { forwarded } else { list })
            }
        }
    }

    /// `hops` from the last to the first.
    fn last_untrusted(
        &self,
        peer: SocketAddr,
        hops: impl Iterator<Item = Result<Option<Hop>, Unclear>>,
        header: HeaderName,
    ) -> Result<SocketAddr, Unclear> {
        let (mut nearest, mut proxies) = (peer, 0);
        for hop in hops {
            match hop? {
                // An empty entry of a list is none (RFC 9110 section 5.6.1).
                None => continue,
                Some(Hop::Hidden) => return Ok(nearest),
                Some(Hop::Address(address)) if !self.trust(address.ip()) => return Ok(address),
                Some(Hop::Address(address)) => nearest = address,
            }
            proxies += 1;
            if proxies > HOPS {
                return Err(Unclear::Hops(header));
            }
        }
        Ok(nearest)
    }
}

fn unclear(header: HeaderName, value: &[u8]) -> Unclear {
    let told = &value[..value.len().min(TOLD_BYTES)];
    Unclear::Value(header, String::from_utf8_lossy(told).into_owned())
}

/// An entry of `X-Forwarded-For`.
fn of_list(entry: &[u8]) -> Result<Option<Hop>, Unclear> {
    let entry = entry.trim_ascii();
    if entry.is_empty() {
        return Ok(None);
    }
    let hop = std::str::from_utf8(entry).ok().and_then(node);
    hop.map(Some).ok_or_else(|| unclear(LIST, entry))
}

/// The entries of a `Forwarded`, from the last to the first.
fn of_forwarded(value: &HeaderValue) -> Vec<Result<Option<Hop>, Unclear>> {
    let text = value.to_str().ok().filter(|text| text.len() <= FORWARDED_BYTES);
    let elements = text.and_then(|text| split_unquoted(text, ','));
    let Some(elements) = elements else { return vec![Err(unclear(FORWARDED, value.as_bytes()))] };
    let read = |element: &&str| {
        element_node(element).ok_or_else(|| unclear(FORWARDED, element.as_bytes()))
    };
    elements.iter().rev().map(read).collect()
}

/// What an element of `Forwarded` says under `for`; an empty one says nothing. None where it is no element.
fn element_node(element: &str) -> Option<Option<Hop>> {
    if element.trim().is_empty() {
        return Some(None);
    }
    let mut hop = None;
    for pair in split_unquoted(element, ';')? {
        if pair.trim().is_empty() {
            continue;
        }
        let (name, value) = pair.trim().split_once('=')?;
        let value = unquoted(value)?;
        if name.eq_ignore_ascii_case("for") && hop.replace(node(&value)?).is_some() {
            return None;
        }
    }
    Some(Some(hop.unwrap_or(Hop::Hidden)))
}

/// The parts of a text between marks that stand in no quoted string. None where a quoted string does not end.
fn split_unquoted(text: &str, mark: char) -> Option<Vec<&str>> {
    let (mut parts, mut from, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, char) in text.char_indices() {
        match char {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if char == mark && !quoted => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    (!quoted).then_some(parts)
}

/// What a token or a quoted string stands for.
fn unquoted(value: &str) -> Option<String> {
    let Some(inner) = value.strip_prefix('"') else {
        let fine = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:[]".contains(c);
        return (!value.is_empty() && value.chars().all(fine)).then(|| value.to_owned());
    };
    let inner = inner.strip_suffix('"')?;
    let (mut text, mut escaped) = (String::new(), false);
    for char in inner.chars() {
        match char {
            '\\' if !escaped => escaped = true,
            '"' if !escaped => return None,
            _ => {
                text.push(char);
                escaped = false;
            }
        }
    }
    (!escaped).then_some(text)
}

/// An address, perhaps with a port, or a word that hides it (RFC 7239 section 6).
fn node(text: &str) -> Option<Hop> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(Hop::Address(SocketAddr::new(address.to_canonical(), 0)));
    }
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, after) = rest.split_once(']')?;
            let port = if after.is_empty() { None } else { Some(after.strip_prefix(':')?) };
            (IpAddr::V6(name.parse().ok()?), port)
        }
        None => {
            let (name, port) = match text.split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            };
            if name.eq_ignore_ascii_case("unknown") || is_obfuscated(name) {
                port.map_or(Some(0), port_number)?;
                return Some(Hop::Hidden);
            }
            (IpAddr::V4(name.parse().ok()?), port)
        }
    };
    let port = port.map_or(Some(0), port_number)?;
    Some(Hop::Address(SocketAddr::new(name.to_canonical(), port)))
}

/// A port; 0 for one that is hidden.
fn port_number(text: &str) -> Option<u16> {
    if is_obfuscated(text) {
        return Some(0);
    }
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn is_obfuscated(text: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    text.len() > 1 && text.starts_with('_') && text.chars().all(fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies() -> Proxies {
        let networks = ["10.0.0.0/8", "2001:db8::/32", "192.0.2.1"];
        Proxies::new(&networks.map(|text| text.parse().unwrap()))
    }

    /// What a trusted proxy's headers come to.
    fn told(headers: &[(&'static str, &str)]) -> Result<String, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let peer = "10.0.0.1:999".parse().unwrap();
        let client = proxies().client(peer, &map);
        client.map(|client| client.to_string()).map_err(|why| why.to_string())
    }

    fn list(value: &str) -> String {
        told(&[("x-forwarded-for", value)]).unwrap_or_else(|why| why)
    }

    fn forwarded(value: &str) -> String {
        told(&[("forwarded", value)]).unwrap_or_else(|why| why)
    }

    #[test]
    fn networks_are_read_strictly() {
        let network = |text: &str| text.parse::<Network>();
        assert!(network("10.0.0.0/8").unwrap().contains("10.255.1.2".parse().unwrap()));
        assert!(network("10.0.0.0/8").unwrap().contains("::ffff:10.1.1.1".parse().unwrap()));
        assert!(!network("10.0.0.0/8").unwrap().contains("11.0.0.0".parse().unwrap()));
        assert!(!network("::/1").unwrap().contains("10.0.0.1".parse().unwrap()));
        assert!(network("fd00::/8").unwrap().contains("fdab::1".parse().unwrap()));
        assert_eq!(network("::ffff:10.0.0.0/104"), network("10.0.0.0/8"));
        assert_eq!(network("::1/128"), network("::1"));
        assert_eq!(network("127.0.0.1/32"), network("127.0.0.1"));
        for wrong in
            ["", "proxy", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/8/8"]
        {
            assert!(network(wrong).unwrap_err().contains("no address and no network"), "{wrong}");
        }
        for all in ["0.0.0.0/0", "::/0", "::ffff:0.0.0.0/96"] {
            assert!(network(all).unwrap_err().contains("everybody"), "{all}");
        }
        assert!(network("10.0.0.1/8").unwrap_err().contains("write 10.0.0.0/8"));
    }

    #[test]
    fn nobody_but_a_trusted_proxy_tells_of_others() {
        let mut headers = HeaderMap::new();
        headers.insert(LIST, HeaderValue::from_static("203.0.113.9"));
        headers.insert(FORWARDED, HeaderValue::from_static("rubbish\""));
        for peer in ["203.0.113.1:5", "[2001:db9::1]:5"] {
            let peer = peer.parse().unwrap();
            assert_eq!(proxies().client(peer, &headers), Ok(peer));
            assert_eq!(Proxies::default().client(peer, &headers), Ok(peer));
        }
        headers.remove(FORWARDED);
        for peer in ["10.9.9.9:5", "[::ffff:10.9.9.9]:5", "[2001:db8::7]:5"] {
            let client = proxies().client(peer.parse().unwrap(), &headers).unwrap();
            assert_eq!(client.ip(), "203.0.113.9".parse::<IpAddr>().unwrap(), "{peer}");
        }
    }

    #[test]
    fn the_last_address_that_is_no_proxys_is_the_clients() {
        assert_eq!(told(&[]).unwrap(), "10.0.0.1:999", "the proxy itself");
        for (value, client) in [
            ("203.0.113.9", "203.0.113.9:0"),
            ("198.51.100.1, 203.0.113.9", "203.0.113.9:0"),
            ("rubbish\", unknown, 203.0.113.9", "203.0.113.9:0"),
            ("198.51.100.1,203.0.113.9 ,\t10.1.2.3,192.0.2.1", "203.0.113.9:0"),
            ("203.0.113.9:5678", "203.0.113.9:5678"),
            ("[2001:db9::1]:80", "[2001:db9::1]:80"),
            ("[2001:db9::1]", "[2001:db9::1]:0"),
            ("2001:db9::1, 2001:db8::9", "[2001:db9::1]:0"),
            ("::ffff:203.0.113.9", "203.0.113.9:0"),
            ("[::ffff:203.0.113.9]:7", "203.0.113.9:7"),
            ("203.0.113.9, ::ffff:10.0.0.3", "203.0.113.9:0"),
            ("203.0.113.9,, ,", "203.0.113.9:0"),
            ("10.0.0.7, 10.0.0.8", "10.0.0.7:0"),
            ("203.0.113.9, unknown, 10.0.0.8", "10.0.0.8:0"),
            ("203.0.113.9, _hidden", "10.0.0.1:999"),
            (" , ", "10.0.0.1:999"),
        ] {
            assert_eq!(list(value), client, "{value}");
        }
        let lines = [("x-forwarded-for", "198.51.100.1"), ("x-forwarded-for", "203.0.113.9")];
        assert_eq!(told(&lines).unwrap(), "203.0.113.9:0", "the last line");
        let long = format!("{}, 203.0.113.9", vec!["198.51.100.1"; 10_000].join(", "));
        assert_eq!(list(&long), "203.0.113.9:0");
        let forged = format!("{}, 203.0.113.9", vec!["10.0.0.9"; 1000].join(", "));
        assert_eq!(list(&forged), "203.0.113.9:0");
    }

    #[test]
    fn what_a_trusted_proxy_did_not_write_right_is_told() {
        for wrong in [
            "example.org",
            "203.0.113.9.",
            "203.0.113.9:65536",
            "203.0.113.9:+1",
            "203.0.113.9:",
            "[::1",
            "[::1]80",
            "[203.0.113.9]",
            "::1:_x y",
            "198.51.100.1 203.0.113.9",
            "_",
            "\"203.0.113.9\"",
            "203.0.113.9%0a",
            "fe80::1%eth0",
            "\u{e9}",
        ] {
            let told = list(&format!("203.0.113.7, {wrong}"));
            assert!(told.contains("where the client's address should stand"), "{wrong}: {told}");
        }
        let told = list(&"x".repeat(5000));
        assert!(told.len() < 400, "{told}");
        let many = vec!["10.0.0.9"; 40].join(",");
        assert!(list(&many).contains("more than 32 trusted proxies"), "{}", list(&many));
    }

    #[test]
    fn forwarded_is_read_with_its_quotes() {
        for (value, client) in [
            ("for=203.0.113.9", "203.0.113.9:0"),
            ("For=\"203.0.113.9:81\";proto=https;by=10.0.0.1", "203.0.113.9:81"),
            ("proto=http; host=\"a,b;for=1.1.1.1\" ;FOR=\"[2001:db9::1]:80\"", "[2001:db9::1]:80"),
            ("for=\"[2001:db9::1]\"", "[2001:db9::1]:0"),
            ("for=198.51.100.1, for=203.0.113.9, for=10.1.1.1", "203.0.113.9:0"),
            ("for=203.0.113.9;by=\"a\\\"b, for=1.1.1.1\"", "203.0.113.9:0"),
            ("for=\"203.0.113.9:_port\"", "203.0.113.9:0"),
            ("for=198.51.100.1, for=unknown", "10.0.0.1:999"),
            ("for=198.51.100.1, for=\"_hidden:_x\", for=10.3.3.3", "10.3.3.3:0"),
            ("for=198.51.100.1, proto=https", "10.0.0.1:999"),
            ("", "10.0.0.1:999"),
        ] {
            assert_eq!(forwarded(value), client, "{value}");
        }
        for wrong in [
            "for=\"198.51.100.1, for=203.0.113.9",
            "for",
            "for=",
            "for=a",
            "for=203.0.113.9;for=203.0.113.8",
            "for=\"203.0.113.9\\\"",
            "for=\"a\"b\"",
            "for=203.0.113.9 x",
        ] {
            let told = forwarded(wrong);
            assert!(told.contains("where the client's address should stand"), "{wrong}: {told}");
        }
        assert!(forwarded(&format!("for={}", "1".repeat(9000))).contains("where the client's"));
        let lines = [("forwarded", "for=\"broken"), ("forwarded", "for=203.0.113.9")];
        assert_eq!(told(&lines).unwrap(), "203.0.113.9:0", "what a client sent is not read");
    }

    #[test]
    fn two_headers_that_differ_are_refused() {
        let both = |list, forwarded| told(&[("x-forwarded-for", list), ("forwarded", forwarded)]);
        assert_eq!(both("203.0.113.9", "for=\"203.0.113.9:5\"").unwrap(), "203.0.113.9:5");
        for (list, forwarded) in [
            ("203.0.113.9", "for=198.51.100.1"),
            ("203.0.113.9", "for=unknown"),
            ("unknown", "for=198.51.100.1"),
        ] {
            assert!(both(list, forwarded).unwrap_err().contains("name different clients"));
        }
    }
}
