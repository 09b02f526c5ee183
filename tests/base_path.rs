//! A server whose pages, sockets and API begin with a path of the settings, beside others on the same host.

use crate::target::{Server, Socket};
use serde_json::json;

fn server() -> Server {
    Server::with_http("base_path: /calls/", "")
}

/// What a page loads.
fn loaded(page: &str) -> Vec<&str> {
    let values =
        |name: &'static str| page.split(name).skip(1).filter_map(|rest| rest.split('"').next());
    values("src=\"").chain(values("href=\"")).collect()
}

#[test]
fn pages_load_what_they_name_from_below_the_path() {
    let server = server();
    for path in ["/calls/", "/calls/room/garden", "/calls/console"] {
        let (status, _, page) = server.get(path, "");
        assert_eq!(status, 200, "{path}: {page}");
        let files = loaded(&page);
        assert!(files.len() >= 2, "{path} loads {files:?}");
        for file in files {
            assert!(file.starts_with("/calls/assets/"), "{path} loads {file}");
            assert_eq!(server.get(file, "").0, 200, "{file}");
        }
    }
    for (path, to) in [("/calls", "/calls/"), ("/calls?name=Ada", "/calls/?name=Ada")] {
        let (status, head, _) = server.get(path, "");
        assert_eq!(status, 308);
        assert_eq!(head.lines().find_map(|line| line.strip_prefix("location: ")), Some(to));
    }
}

#[test]
fn sockets_api_and_metrics_are_below_the_path_alone() {
    let server = server();
    let base = format!("{}/calls", server.http);
    let wire = || server.wire_from([127, 0, 0, 1]).unwrap();
    let mut socket = Socket::try_over(wire(), &base, &[]).unwrap();
    socket.ask("room.join", json!({ "room": "a", "name": "a" }));
    let refused = Socket::try_over(wire(), &server.http.to_string(), &[]).err().unwrap();
    assert!(
        refused.starts_with("404 not found: this server's paths begin with /calls/"),
        "{refused}"
    );
    let described = server.get("/calls/v1/openapi.json", "").2;
    let described: serde_json::Value = serde_json::from_str(&described).unwrap();
    assert_eq!(described["servers"][0]["url"], "/calls");
    let metrics = server.get("/calls/metrics", "").2;
    assert!(metrics.contains("moim_"), "{metrics}");
    for path in ["/healthz", "/calls/healthz"] {
        assert_eq!(server.get(path, "").2, "ok\n", "{path}");
    }
    for outside in [
        "/",
        "/room/garden",
        "/console",
        "/metrics",
        "/v1/openapi.json",
        "/callsx/",
        "/calls/calls/x",
    ] {
        let (status, head, _) = server.get(outside, "");
        assert_eq!(status, 404, "{outside}");
        assert!(head.contains("x-content-type-options: nosniff"), "{head}");
    }
}

#[test]
fn a_server_without_a_path_is_as_it_was() {
    let server = Server::with("");
    for path in ["/", "/room/garden", "/console"] {
        let page = server.get(path, "").2;
        let files = loaded(&page);
        assert!(files.len() >= 2, "{path} loads {files:?}");
        for file in files {
            assert!(file.starts_with("/assets/"), "{path} loads {file}");
            assert_eq!(server.get(file, "").0, 200, "{file}");
        }
    }
}
