//! Addresses of servers.

/// Where a server answers: `http://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Name or address; an IPv6 address in brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl Url {
    /// What to write, for messages.
    pub const EXPECTED: &'static str = "the server's address, such as http://127.0.0.1:7880";

    /// Reads `http://host[:port]`, or the same with `ws://`.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("http://").or_else(|| text.strip_prefix("ws://")) else {
            return Err(format!("{text:?} is no http:// or ws:// address"));
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#', '@', ' ']) {
            return Err(format!("{text:?} has more than a host and a port"));
        }
        let after_address = rest.rfind(']').map_or(0, |at| at + 1);
        let (host, port) = match rest[after_address..].rfind(':') {
            Some(at) => (&rest[..after_address + at], &rest[after_address + at + 1..]),
            None => (rest, "80"),
        };
        if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
            return Err(format!(
                "{text:?}: an IPv6 address stands in brackets, such as http://[::1]:7880"
            ));
        }
        let port: u16 = port.parse().map_err(|_| format!("{port:?} is no port"))?;
        if host.is_empty() || port == 0 {
            return Err(format!("{text:?} names no host or no port"));
        }
        Ok(Self { host: host.to_owned(), port })
    }

    /// `host:port`.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The socket endpoint.
    pub fn socket(&self) -> String {
        format!("ws://{}{}", self.authority(), wire::frame::SOCKET_PATH)
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_address_stands_in_brackets() {
        let url = Url::parse("http://[::1]:7990").unwrap();
        assert_eq!((url.host.as_str(), url.port), ("[::1]", 7990));
        assert_eq!(Url::parse("ws://[fd00::2]/").unwrap().authority(), "[fd00::2]:80");
        for text in ["http://::1:7990", "http://fd00::1", "http://::1"] {
            assert!(Url::parse(text).unwrap_err().contains("brackets"), "{text}");
        }
    }
}
