//! Metrics and console are for whom the settings name, and names of others lead to nothing.

use super::SECRET;
use crate::target::{Server, eventually};
use std::net::SocketAddr;

/// What must not be open to everybody.
const HIDDEN: [&str; 2] = ["/metrics", "/console"];

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn metrics_and_console_of_a_configured_server_are_nobodys_unless_the_settings_say_whose() {
    let server = Server::without_metrics("guests: join\n");
    for path in HIDDEN {
        for headers in [String::new(), bearer(SECRET)] {
            let (status, _, body) = server.get(path, &headers);
            assert_eq!(status, 403, "{path}: {body}");
            assert!(body.contains("set admin.bind or admin.token"), "{path}: {body}");
        }
    }
    assert_eq!(server.get("/healthz", "").2, "ok\n", "that it runs, everybody may know");
    for path in ["/v1/rooms", "/v1/quality"] {
        assert_eq!(server.get(path, "").0, 401, "{path}");
    }
}

#[test]
fn a_token_of_the_settings_opens_metrics_and_console() {
    let server = Server::without_metrics(&format!("admin: {{ token: {SECRET} }}\n"));
    for path in HIDDEN {
        let (status, head, _) = server.get(path, "");
        assert_eq!(status, 401, "{path}");
        assert!(head.to_lowercase().contains("www-authenticate: basic"), "browsers ask: {head}");
        assert_eq!(server.get(path, &bearer("0123456789abcdef0123456789abcdeg")).0, 401, "{path}");
    }
    for path in ["/metrics", "/console", "/v1/rooms", "/v1/quality"] {
        assert_eq!(server.get(path, &bearer(SECRET)).0, 200, "{path}");
    }
    assert_eq!(server.get("/v1/sockets", &bearer(SECRET)).0, 401, "no token for sockets");
}

#[test]
fn an_address_of_their_own_opens_metrics_and_console_there_alone() {
    let server = Server::without_metrics("admin: { bind: \"127.0.0.2:0\" }\n");
    let own: SocketAddr =
        eventually("the address in the log", || server.logged_url("metrics and console are at"));
    assert!(own.ip() != server.http.ip() && own.port() != server.http.port());
    for path in ["/metrics", "/console", "/v1/rooms", "/v1/quality"] {
        assert_eq!(server.request("GET", own, path, "", "").0, 200, "{path}");
        assert!([401, 403].contains(&server.get(path, "").0), "{path}");
    }
}

#[test]
fn a_name_that_is_not_the_servers_leads_to_nothing() {
    let server = Server::with("hosts: [call.example.org]\n");
    let with = |host: &str, path: &str| server.get(path, &format!("Host: {host}\r\n"));
    for path in ["/", "/room/garden", "/metrics", "/v1/openapi.json", "/socketcluster/", "/nothing"]
    {
        let (status, _, body) = with("evil.example:7880", path);
        assert_eq!(status, 421, "{path}: {body}");
        assert!(body.contains("list the name under `hosts`"), "{path}: {body}");
    }
    for host in ["call.example.org", "Call.Example.org:443", "localhost", "127.0.0.1", "[::1]:80"] {
        assert_eq!(with(host, "/").0, 200, "{host}");
    }
    assert_eq!(with("evil.example", "/healthz").0, 200, "it only says that it runs");
    assert_eq!(server.dropped("http", "host"), 6);
}
