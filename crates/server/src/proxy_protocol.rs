//! The PROXY protocol, versions 1 and 2 (haproxy's `proxy-protocol.txt`): what a proxy says before the first byte of
//! the connection that it passes on. No IO here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const V1: &[u8] = b"PROXY ";
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Longest header of version 1, with its line end.
const V1_BYTES: usize = 107;
/// Before the addresses of version 2.
const V2_HEAD: usize = 16;
/// Longest header of version 2: addresses, and what else a proxy adds to them, such as the client's certificate.
const V2_BYTES: usize = 4 << 10;

/// What a connection begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// More bytes are needed to tell.
    More,
    /// No header: all bytes are the client's.
    Other,
    /// A header of so many bytes.
    Header {
        bytes: usize,
        /// None where the proxy speaks for itself, such as to look whether the server is there, or does not know.
        client: Option<SocketAddr>,
    },
}

/// Why a header is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadHeader {
    /// It is longer than so many bytes.
    TooLong(usize),
    /// It is no line of version 1.
    Line,
    /// The version of a binary header.
    Version(u8),
    /// A command that is neither LOCAL nor PROXY.
    Command(u8),
    /// The family and transport are of no stream.
    Family(u8),
    /// There is no room for the addresses of its family.
    TooShort,
}

impl fmt::Display for BadHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(most) => write!(f, "its PROXY header has more than {most} bytes"),
            Self::Line => f.write_str("its PROXY header is no line of version 1"),
            Self::Version(version) => {
                write!(f, "its PROXY header has version {version}, not 1 or 2")
            }
            Self::Command(command) => {
                write!(f, "its PROXY header has command {command}, not LOCAL (0) or PROXY (1)")
            }
            Self::Family(family) => write!(
                f,
                "its PROXY header has family and transport {family:#04x}, which is no TCP connection"
            ),
            Self::TooShort => f.write_str("its PROXY header is too short for its addresses"),
        }
    }
}

/// Whether data begins with a header, or what is meant to be one.
pub(crate) fn has_signature(data: &[u8]) -> bool {
    data.starts_with(V1) || data.starts_with(V2)
}

/// Reads the beginning of a connection.
///
/// # Errors
/// It has the signature of a header, and is none that can be taken.
pub(crate) fn read(data: &[u8]) -> Result<Beginning, BadHeader> {
    if data.starts_with(V1) {
        return read_line(data);
    }
    if data.starts_with(V2) {
        return read_binary(data);
    }
    let may_come = V1.starts_with(data) || V2.starts_with(data);
    Ok(if may_come { Beginning::More } else { Beginning::Other })
}

fn read_line(data: &[u8]) -> Result<Beginning, BadHeader> {
    let within = &data[..data.len().min(V1_BYTES)];
    let Some(end) = within.iter().position(|byte| *byte == b'\n') else {
        return match data.len() {
            V1_BYTES.. => Err(BadHeader::TooLong(V1_BYTES)),
            _ => Ok(Beginning::More),
        };
    };
    let line = within[..end].strip_suffix(b"\r").and_then(|line| std::str::from_utf8(line).ok());
    let line = line.ok_or(BadHeader::Line)?;
    let fields: Vec<&str> = line.split(' ').skip(1).collect();
    let client = match fields[..] {
        // What follows UNKNOWN is not looked at.
        ["UNKNOWN", ..] => None,
        [family @ ("TCP4" | "TCP6"), from, to, from_port, to_port] => {
            let address = |text: &str| match family {
                "TCP4" => text.parse().map(IpAddr::V4).ok(),
                _ => text.parse().map(IpAddr::V6).ok(),
            };
            let read = || {
                address(to)?;
                port(to_port)?;
                Some(SocketAddr::new(address(from)?.to_canonical(), port(from_port)?))
            };
            Some(read().ok_or(BadHeader::Line)?)
        }
        _ => return Err(BadHeader::Line),
    };
    Ok(Beginning::Header { bytes: end + 1, client })
}

/// A decimal number without zeros before it.
fn port(text: &str) -> Option<u16> {
    let strict =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    strict.then(|| text.parse().ok())?
}

fn read_binary(data: &[u8]) -> Result<Beginning, BadHeader> {
    let Some((&[.., command, family, high, low], rest)) = data.split_first_chunk::<V2_HEAD>()
    else {
        return Ok(Beginning::More);
    };
    if command >> 4 != 2 {
        return Err(BadHeader::Version(command >> 4));
    }
    let len = usize::from(u16::from_be_bytes([high, low]));
    if V2_HEAD + len > V2_BYTES {
        return Err(BadHeader::TooLong(V2_BYTES));
    }
    // Of UNIX sockets nobody has an address that counts.
    let needed = match (command & 0xF, family) {
        (0, _) | (1, 0x00) => 0,
        (1, 0x11) => 12,
        (1, 0x21) => 36,
        (1, 0x31) => 216,
        (1, other) => return Err(BadHeader::Family(other)),
        (other, _) => return Err(BadHeader::Command(other)),
    };
    if len < needed {
        return Err(BadHeader::TooShort);
    }
    let Some(addresses) = rest.get(..len) else { return Ok(Beginning::More) };
    let client = match addresses[..needed] {
        [a, b, c, d, _, _, _, _, high, low, _, _] => {
            Some((IpAddr::V4(Ipv4Addr::new(a, b, c, d)), [high, low]))
        }
        [ref both @ .., high, low, _, _] if needed == 36 => {
            let from: [u8; 16] = std::array::from_fn(|at| both[at]);
            Some((IpAddr::V6(Ipv6Addr::from(from)), [high, low]))
        }
        _ => None,
    };
    let client = client
        .map(|(address, port)| SocketAddr::new(address.to_canonical(), u16::from_be_bytes(port)));
    Ok(Beginning::Header { bytes: V2_HEAD + len, client })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
        let len = (addresses.len() as u16).to_be_bytes();
        [V2, &[command, family], &len, addresses].concat()
    }

    /// Every part of a header wants more, and what follows it is not of it.
    fn header(data: &[u8]) -> Option<SocketAddr> {
        for part in 0..data.len() {
            assert_eq!(read(&data[..part]), Ok(Beginning::More), "{part} bytes");
        }
        let (bytes, all) = (data.len(), [data, b"GET / HTTP/1.1\r\n"].concat());
        match read(&all) {
            Ok(Beginning::Header { bytes: read, client }) if read == bytes => client,
            other => panic!("{other:?}"),
        }
    }

    fn at(text: &str) -> Option<SocketAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn headers_of_both_versions_tell_the_client() {
        assert_eq!(header(b"PROXY TCP4 203.0.113.9 10.0.0.1 5678 80\r\n"), at("203.0.113.9:5678"));
        assert_eq!(header(b"PROXY TCP6 2001:db9::1 ::1 0 65535\r\n"), at("[2001:db9::1]:0"));
        assert_eq!(header(b"PROXY TCP6 ::ffff:203.0.113.9 ::1 1 2\r\n"), at("203.0.113.9:1"));
        for unknown in ["PROXY UNKNOWN\r\n", "PROXY UNKNOWN ffff:f::1 whatever 1 2 3\r\n"] {
            assert_eq!(header(unknown.as_bytes()), None);
        }
        let v4 = [203, 0, 113, 9, 10, 0, 0, 1, 0x16, 0x2E, 0, 80];
        assert_eq!(header(&binary(0x21, 0x11, &v4)), at("203.0.113.9:5678"));
        let more = [&v4[..], &[4, 0, 3, 1, 2, 3]].concat();
        assert_eq!(header(&binary(0x21, 0x11, &more)), at("203.0.113.9:5678"), "with a TLV");
        let v6 = |from: &str| {
            let from: Ipv6Addr = from.parse().unwrap();
            [&from.octets()[..], &[0; 16], &[0, 9, 0, 80]].concat()
        };
        assert_eq!(header(&binary(0x21, 0x21, &v6("2001:db9::1"))), at("[2001:db9::1]:9"));
        assert_eq!(header(&binary(0x21, 0x21, &v6("::ffff:203.0.113.9"))), at("203.0.113.9:9"));
        assert_eq!(header(&binary(0x20, 0x00, &[])), None, "LOCAL");
        assert_eq!(header(&binary(0x20, 0x11, &v4)), None, "LOCAL with an address");
        assert_eq!(header(&binary(0x20, 0xFF, &[1; 3])), None, "LOCAL of any family");
        assert_eq!(header(&binary(0x21, 0x00, &[7; 5])), None, "an unknown family");
        assert_eq!(header(&binary(0x21, 0x31, &[b'/'; 216])), None, "UNIX sockets");
        let longest = binary(0x21, 0x11, &[&v4[..], &[0; V2_BYTES - V2_HEAD - 12]].concat());
        assert_eq!(header(&longest), at("203.0.113.9:5678"));
    }

    #[test]
    fn wrong_headers_are_refused_with_the_reason() {
        let line = |text: &str| read(text.as_bytes());
        for wrong in [
            "PROXY \r\n",
            "PROXY TCP4\r\n",
            "PROXY TCP4 203.0.113.9 10.0.0.1 5678 80\n",
            "PROXY TCP4 203.0.113.9 10.0.0.1 5678 80 \r\n",
            "PROXY  TCP4 203.0.113.9 10.0.0.1 5678 80\r\n",
            "PROXY TCP4 203.0.113.09 10.0.0.1 5678 80\r\n",
            "PROXY TCP4 ::1 ::1 5678 80\r\n",
            "PROXY TCP6 203.0.113.9 ::1 5678 80\r\n",
            "PROXY TCP6 [::1] ::1 5678 80\r\n",
            "PROXY TCP4 203.0.113.9 10.0.0.1 05678 80\r\n",
            "PROXY TCP4 203.0.113.9 10.0.0.1 5678 65536\r\n",
            "PROXY TCP4 203.0.113.9 10.0.0.1 +1 80\r\n",
            "PROXY TCP4 203.0.113.9 nobody 1 80\r\n",
            "PROXY UDP4 203.0.113.9 10.0.0.1 5678 80\r\n",
            "PROXY unknown\r\n",
        ] {
            assert_eq!(line(wrong), Err(BadHeader::Line), "{wrong}");
        }
        let longest = format!("PROXY UNKNOWN {}\r\n", "x".repeat(V1_BYTES - 16));
        assert_eq!(header(longest.as_bytes()), None);
        let long = format!("PROXY UNKNOWN {}", "x".repeat(V1_BYTES));
        assert_eq!(line(&long), Err(BadHeader::TooLong(107)));
        for (command, family, addresses, why) in [
            (0x11, 0x11, &[0; 12][..], BadHeader::Version(1)),
            (0x31, 0x11, &[0; 12], BadHeader::Version(3)),
            (0x22, 0x11, &[0; 12], BadHeader::Command(2)),
            (0x21, 0x12, &[0; 12], BadHeader::Family(0x12)),
            (0x21, 0x41, &[0; 12], BadHeader::Family(0x41)),
            (0x21, 0x11, &[0; 11], BadHeader::TooShort),
            (0x21, 0x21, &[0; 35], BadHeader::TooShort),
            (0x21, 0x31, &[0; 215], BadHeader::TooShort),
            (0x20, 0x00, &[0; V2_BYTES - V2_HEAD + 1], BadHeader::TooLong(V2_BYTES)),
        ] {
            let data = binary(command, family, addresses);
            assert_eq!(read(&data), Err(why));
            assert_eq!(read(&data[..V2_HEAD]), Err(why), "before the rest comes");
        }
    }

    #[test]
    fn what_is_no_header_is_the_clients() {
        for data in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"POST / HTTP/1.1\r\n",
            b"PROXZ",
            b"PROXYING / HTTP/1.1",
            b"PROPFIND / HTTP/1.1",
            b"\r\n\r\nGET",
            b"\x16\x03\x01",
            b"\x00\x01",
        ] {
            assert_eq!(read(data), Ok(Beginning::Other));
            assert!(!has_signature(data));
        }
        assert_eq!(read(b""), Ok(Beginning::More));
        assert!(has_signature(b"PROXY TCP9") && has_signature(V2));
    }
}
