//! Who may ask what over HTTP: pages by their `Origin`, names by the `Host` they came by, and metrics and console by
//! the address or the token that the settings name.

use crate::api::Problem;
use crate::auth::Auth;
use crate::config::Config;
use axum::http::header::{HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, SocketAddr};

/// The address that a request came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entrance {
    /// It stands under `admin.bind`.
    pub admin: bool,
}

/// The rules of a server.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub origins: Origins,
    development: bool,
    /// Names of this server.
    hosts: Vec<String>,
    /// Metrics and console are answered at some addresses only.
    admin_bound: bool,
}

impl Access {
    /// What the settings say, with the bound addresses.
    pub(crate) fn new(config: &Config, addresses: &[SocketAddr]) -> Self {
        let ports = || addresses.iter().map(SocketAddr::port).collect();
        Self {
            origins: Origins {
                listed: config.origins.clone(),
                development_ports: config.development.then(ports),
            },
            development: config.development,
            hosts: config.hosts.clone(),
            admin_bound: !config.admin.bind.is_empty(),
        }
    }

    /// Whether anything goes, for this machine alone.
    pub(crate) fn is_development(&self) -> bool {
        self.development
    }

    /// A page of another site can have its name lead here (DNS rebinding): to the browser it is then of the same
    /// site as this server. So names that are not this server's are answered nothing; an IP address is no name.
    /// Where there is no `Host` there is no browser.
    pub(crate) fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), &'static str> {
        let header = headers.get(HOST).map(|host| host.to_str().unwrap_or_default());
        let authority = uri.authority().map(|authority| authority.as_str());
        if [header, authority].into_iter().flatten().all(|host| self.is_own(host)) {
            return Ok(());
        }
        Err(match self.development {
            true => {
                "in development mode this server is reached by localhost, 127.0.0.1 or [::1] only"
            }
            false => {
                "this server does not go by the name in Host: list the name under `hosts` in moim.yaml, or use \
                 its IP address"
            }
        })
    }

    fn is_own(&self, authority: &str) -> bool {
        let lower = authority.to_ascii_lowercase();
        let (host, _) = split_port("http", &lower);
        if is_loopback(host) {
            return true;
        }
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = host.strip_suffix('.').unwrap_or(host);
        !self.development
            && (bare.parse::<IpAddr>().is_ok() || self.hosts.iter().any(|own| own == name))
    }

    /// Whether metrics and console may be seen by this request.
    pub(crate) fn check_admin(
        &self,
        entrance: Entrance,
        headers: &HeaderMap,
        auth: &Auth,
    ) -> Result<(), Hidden> {
        let wants_token = auth.wants_admin_token();
        match () {
            () if self.development => Ok(()),
            () if self.admin_bound && !entrance.admin => Err(Hidden::Elsewhere),
            () if wants_token && !auth.shows_admin_token(headers) => Err(Hidden::Token),
            () if !self.admin_bound && !wants_token => Err(Hidden::Unset),
            () => Ok(()),
        }
    }
}

/// Why metrics and console are not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// They are at another address.
    Elsewhere,
    /// `admin.token` was not shown.
    Token,
    /// The settings name neither an address nor a token.
    Unset,
}

impl IntoResponse for Hidden {
    fn into_response(self) -> Response {
        let (status, why) = match self {
            Self::Elsewhere => (
                StatusCode::FORBIDDEN,
                "metrics and console are at the address under `admin.bind` only",
            ),
            Self::Token => (
                StatusCode::UNAUTHORIZED,
                "send `Authorization: Bearer` with the admin.token of moim.yaml",
            ),
            Self::Unset => (
                StatusCode::FORBIDDEN,
                "metrics and console are for whom moim.yaml names: set admin.bind or admin.token there",
            ),
        };
        let mut response = Problem::new(status, "admin", why).into_response();
        if self == Self::Token {
            // A browser asks for it: any user name, and the token as the password. Chromium takes no second
            // scheme in the same header.
            let how = HeaderValue::from_static("Basic realm=\"moim: any name, and admin.token\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, how);
        }
        response
    }
}

/// Whose pages may open sockets. A page of another site could otherwise act here in the name of
/// whoever looks at it. Clients that are no browsers send no `Origin`.
#[derive(Debug, Clone)]
pub(crate) struct Origins {
    listed: Vec<String>,
    /// In development mode: the ports of our own pages.
    development_ports: Option<Vec<u16>>,
}

impl Origins {
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or_default().to_ascii_lowercase();
        if self.listed.contains(&origin) {
            return Ok(());
        }
        let Some((scheme, authority)) = origin.split_once("://") else {
            return Err("this Origin is no page's address");
        };
        match &self.development_ports {
            Some(ports) => {
                let (host, port) = split_port(scheme, authority);
                if is_loopback(host) && port.is_some_and(|port| ports.contains(&port)) {
                    return Ok(());
                }
                Err("in development mode only this server's own pages on loopback hosts may open \
                     sockets: start it with --config and list others under `origins`")
            }
            None => {
                let host = headers.get(HOST).and_then(|host| host.to_str().ok());
                let same = host.is_some_and(|host| {
                    let host = host.to_ascii_lowercase();
                    split_port(scheme, &host) == split_port(scheme, authority)
                });
                if same {
                    return Ok(());
                }
                Err("pages of this Origin may not open sockets: list it under `origins`")
            }
        }
    }
}

fn split_port<'a>(scheme: &str, authority: &'a str) -> (&'a str, Option<u16>) {
    match authority.rsplit_once(':') {
        // The last colon of `[::1]` is none before a port.
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
        _ => (authority, Some(if scheme == "https" { 443 } else { 80 })),
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(origins: &Origins, origin: &str, host: &str) -> bool {
        let mut headers = HeaderMap::new();
        if !origin.is_empty() {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        headers.insert(HOST, host.parse().unwrap());
        origins.check(&headers).is_ok()
    }

    fn reached_by(config: &Config, host: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        Access::new(config, &[]).check_host(&Uri::from_static("/"), &headers).is_ok()
    }

    #[test]
    fn only_names_of_the_settings_lead_here() {
        let development = Config::development();
        let hosts = vec!["call.example.org".to_owned()];
        let configured = Config { development: false, hosts, ..Config::development() };
        for (host, in_development, with_settings) in [
            ("localhost:7880", true, true),
            ("127.0.0.1", true, true),
            ("[::1]:7880", true, true),
            ("192.0.2.7:7880", false, true),
            ("[2001:db8::7]", false, true),
            ("call.example.org", false, true),
            ("Call.Example.ORG.:443", false, true),
            ("evil.example", false, false),
            ("call.example.org.evil.example", false, false),
            ("evil.example:443@call.example.org", false, false),
            ("127.0.0.1.evil.example", false, false),
            ("localhost.evil.example:7880", false, false),
            ("", false, false),
        ] {
            assert_eq!(reached_by(&development, host), in_development, "{host}");
            assert_eq!(reached_by(&configured, host), with_settings, "{host}");
        }
        // An absolute target wins over Host (RFC 9112 section 3.2.2): both must be ours.
        let access = Access::new(&configured, &[]);
        let mut headers = HeaderMap::new();
        let target = Uri::from_static("http://evil.example/metrics");
        assert!(access.check_host(&Uri::from_static("/"), &headers).is_ok(), "no browser");
        assert!(access.check_host(&target, &headers).is_err());
        headers.insert(HOST, HeaderValue::from_static("call.example.org"));
        assert!(access.check_host(&target, &headers).is_err());
    }

    #[test]
    fn metrics_and_console_want_what_the_settings_name() {
        let secret = crate::auth::Secret::new("0123456789abcdef0123456789abcdef").unwrap();
        let with = |bind: bool, token: bool| {
            let mut config = Config { development: false, ..Config::development() };
            config.admin.bind.extend(bind.then(|| SocketAddr::from(([127, 0, 0, 1], 1))));
            config.admin.token = token.then(|| secret.clone());
            config
        };
        let shown = |config: &Config, admin: bool, authorization: &str| {
            let mut headers = HeaderMap::new();
            if !authorization.is_empty() {
                headers.insert(axum::http::header::AUTHORIZATION, authorization.parse().unwrap());
            }
            let access = Access::new(config, &[]);
            access.check_admin(Entrance { admin }, &headers, &Auth::from_config(config))
        };
        let bearer = "Bearer 0123456789abcdef0123456789abcdef";
        let basic = |text: &str| format!("Basic {}", data_encoding::BASE64.encode(text.as_bytes()));
        let right = basic("me:0123456789abcdef0123456789abcdef");
        let (other, wrong) = ("Bearer 0123456789abcdef0123456789abcdeg", basic("me:x"));
        assert_eq!(shown(&Config::development(), false, ""), Ok(()));
        assert_eq!(shown(&with(false, false), false, bearer), Err(Hidden::Unset));
        assert_eq!(shown(&with(true, false), true, ""), Ok(()));
        assert_eq!(shown(&with(true, false), false, bearer), Err(Hidden::Elsewhere));
        assert_eq!(shown(&with(true, true), false, bearer), Err(Hidden::Elsewhere));
        for admin in [false, true] {
            let config = with(admin, true);
            for good in [bearer, "bearer  0123456789abcdef0123456789abcdef", &right] {
                assert_eq!(shown(&config, admin, good), Ok(()), "{good}");
            }
            for bad in ["", other, &wrong, "Bearer", "Basic !", &basic("no colon"), &bearer[..20]] {
                assert_eq!(shown(&config, admin, bad), Err(Hidden::Token), "{bad}");
            }
        }
    }

    #[test]
    fn development_takes_loopback_pages_on_our_port() {
        let origins = Origins { listed: Vec::new(), development_ports: Some(vec![7880]) };
        for origin in [
            "",
            "http://localhost:7880",
            "http://127.0.0.1:7880",
            "http://[::1]:7880",
            "HTTP://LOCALHOST:7880",
        ] {
            assert!(check(&origins, origin, "127.0.0.1:7880"), "{origin}");
        }
        for origin in [
            "http://localhost:7881",
            "http://localhost",
            "http://evil.example:7880",
            "http://localhost.evil.example:7880",
            "http://127.0.0.1.evil.example:7880",
            "null",
            "http://localhost:7880@evil.example",
        ] {
            // A rebound name makes Host and Origin the same: in development that is no pass.
            assert!(!check(&origins, origin, "evil.example:7880"), "{origin}");
        }
    }

    #[test]
    fn with_settings_the_own_host_and_listed_origins_are_taken() {
        let listed = vec!["https://call.example.org".to_owned()];
        let origins = Origins { listed, development_ports: None };
        assert!(check(&origins, "https://call.example.org", "sfu.example.org"));
        assert!(check(&origins, "https://sfu.example.org", "sfu.example.org"));
        assert!(check(&origins, "https://sfu.example.org", "SFU.example.org:443"));
        assert!(check(&origins, "http://[2001:db8::1]:80", "[2001:db8::1]"));
        assert!(check(&origins, "", "sfu.example.org"));
        assert!(!check(&origins, "http://sfu.example.org", "sfu.example.org:443"));
        assert!(!check(&origins, "https://other.example.org", "sfu.example.org"));
        assert!(!check(&origins, "https://call.example.org.evil", "sfu.example.org"));
        assert!(!check(&origins, "null", "null"));
    }
}
