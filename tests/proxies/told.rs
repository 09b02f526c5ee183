//! What a trusted proxy tells counts, and what anybody else tells does not.

use crate::target::{Server, Socket, connect_from, eventually, free_ports_with};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

/// The proxy of the settings.
const PROXY: [u8; 4] = [127, 0, 0, 7];
/// Somebody else.
const OTHER: [u8; 4] = [127, 0, 0, 8];
const TRUSTED: &str = "trusted_proxies: [127.0.0.7, \"2001:db8::/32\"]";
/// Connections of one address.
const MOST: usize = 4;

fn server() -> Server {
    Server::with_http(TRUSTED, &format!("limits: {{ connections_per_address: {MOST} }}\n"))
}

/// A socket that the proxy passes on for who `X-Forwarded-For` says.
fn socket_for(
    server: &Server,
    from: [u8; 4],
    header: (&'static str, &str),
) -> Result<Socket, String> {
    let wire = server.wire_from(from).map_err(|error| error.to_string())?;
    Socket::try_over(wire, &server.http.to_string(), &[header])
}

fn join(mut socket: Socket) -> Socket {
    socket.ask("room.join", json!({ "room": "a", "name": "a" }));
    socket
}

/// An answer of `/healthz` through the proxy for a client.
fn health_for(server: &Server, client: &str) -> String {
    let header = format!("X-Forwarded-For: {client}\r\n");
    server.get_over(server.wire_from(PROXY).unwrap(), "/healthz", &header).unwrap()
}

/// Lines of the log that name an address and have a text.
fn lines(server: &Server, address: &str, text: &str) -> Vec<Value> {
    let log = server.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let fits = |line: &Value| {
        line["address"] == address && line["message"].as_str().is_some_and(|m| m.contains(text))
    };
    lines.filter(fits).collect()
}

#[test]
fn behind_a_proxy_each_client_has_a_limit_of_its_own() {
    let server = server();
    let of = |client: &str| socket_for(&server, PROXY, ("x-forwarded-for", client)).map(join);
    // More people than one address may have connections.
    let all: Vec<Socket> = (1..=3 * MOST).map(|n| of(&format!("203.0.113.{n}")).unwrap()).collect();
    // The first of them comes again, in several ways, as often as one address may.
    let ways = ["203.0.113.1", "198.51.100.9, 203.0.113.1:4711", "::ffff:203.0.113.1, 2001:db8::5"];
    let mut again: Vec<Socket> = ways.iter().map(|way| of(way).unwrap()).collect();
    for way in ways {
        let refused = of(way).err().unwrap();
        assert!(refused.starts_with("429 "), "{refused}");
        assert!(refused.contains("limits.connections_per_address"), "{refused}");
        assert!(refused.contains("http.trusted_proxies"), "{refused}");
        // A page is no more than a request, and counts as well.
        let header = format!("X-Forwarded-For: {way}\r\n");
        let page = server.get_over(server.wire_from(PROXY).unwrap(), "/", &header).unwrap();
        assert!(page.starts_with("HTTP/1.0 429 "), "{page}");
        assert!(health_for(&server, way).ends_with("ok\n"));
    }
    assert!(server.dropped("http", "too_many_of_address") >= 6);
    let told = lines(&server, "203.0.113.1", "limits.connections_per_address");
    assert_eq!(told.len(), 1, "one line a minute: {}", server.log());
    assert!(lines(&server, "127.0.0.7", "").is_empty(), "the proxy has no limit: {}", server.log());
    // Who leaves makes room.
    again.pop();
    let _more = eventually("room for one more", || of("203.0.113.1").ok());
    drop(all);
}

#[test]
fn forwarded_counts_like_the_other_header() {
    let server = server();
    let of = |value: &str| socket_for(&server, PROXY, ("forwarded", value));
    let _held: Vec<Socket> =
        (0..MOST).map(|n| of(&format!("for=\"203.0.113.1:{n}\"")).unwrap()).collect();
    let refused = of("for=198.51.100.2, for=203.0.113.1;proto=https").err().unwrap();
    assert!(refused.starts_with("429 "), "{refused}");
    of("for=203.0.113.2, for=\"[2001:db8::1]:80\"").unwrap();
    // Where the proxy hides its clients, only the bounds of the whole server count.
    let _hidden: Vec<Socket> = (0..2 * MOST).map(|_| of("for=_hidden").unwrap()).collect();
}

#[test]
fn what_others_say_of_their_address_is_not_believed() {
    let server = server();
    let of = |n: usize| {
        let client = format!("203.0.113.{n}");
        socket_for(&server, OTHER, ("x-forwarded-for", &client))
    };
    let _held: Vec<Socket> = (0..MOST).map(|n| join(of(n).unwrap())).collect();
    let refused =
        eventually("a place of the reserve", || of(9).err().filter(|e| e.starts_with("4")));
    assert!(refused.starts_with("429 ") && refused.contains("http.trusted_proxies"), "{refused}");
    // The reserve is for two at a time: one that was refused may not have gone yet.
    let healthy = || server.get_from(OTHER, "/healthz").ok().filter(|a| a.ends_with("ok\n"));
    eventually("an answer of /healthz", healthy);
    let told = lines(&server, "127.0.0.8", "limits.connections_per_address");
    assert_eq!(told.len(), 1, "{}", server.log());
    assert_eq!(told[0]["most"], MOST);
}

#[test]
fn a_header_that_tells_no_client_is_refused_with_the_reason() {
    let server = server();
    for (headers, why) in [
        ("X-Forwarded-For: 203.0.113.1, example.org\r\n", "\"example.org\" where"),
        ("Forwarded: for=\"203.0.113.1\r\n", "where the client's address should stand"),
        (
            "Forwarded: for=203.0.113.1\r\nX-Forwarded-For: 203.0.113.2\r\n",
            "name different clients",
        ),
    ] {
        let get = |path: &str| server.get_over(server.wire_from(PROXY).unwrap(), path, headers);
        let answer = get("/").unwrap();
        assert!(answer.starts_with("HTTP/1.0 400 ") && answer.contains(why), "{answer}");
        assert!(get("/healthz").unwrap().ends_with("ok\n"), "it is well all the same");
        let direct = server.get_over(server.wire_from(OTHER).unwrap(), "/", headers).unwrap();
        assert!(direct.starts_with("HTTP/1.0 200 "), "nobody reads it of others: {direct}");
    }
    assert_eq!(server.dropped("http", "bad_proxy_header"), 3);
    assert_eq!(lines(&server, "127.0.0.7", "is refused: ").len(), 1, "{}", server.log());
    // A list that the client made long is passed over.
    let long = format!("X-Forwarded-For: {}203.0.113.1\r\n", "198.51.100.1, ".repeat(1500));
    let answer = server.get_over(server.wire_from(PROXY).unwrap(), "/", &long).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 "), "{answer}");
}

/// A server that few connections fill.
fn small_server() -> Server {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("moim.yaml");
    let admin = "admin: { bind: \"127.0.0.1:0\" }\n";
    std::fs::write(&config, format!("{}{admin}", free_ports_with(TRUSTED))).unwrap();
    let mut command = Command::new("prlimit");
    command.arg("--nofile=400:400").arg(env!("CARGO_BIN_EXE_moim"));
    command.args(["serve", "--config"]).arg(config);
    Server::launch(command, directory)
}

#[test]
fn a_full_server_tells_a_proxy_that_it_is_well() {
    let server = small_server();
    let mut held: Vec<TcpStream> = Vec::new();
    let mut sources = (0..=u8::MAX).map(|last| [127, 2, 0, last]);
    eventually("the last place taken", || {
        held.extend(connect_from(sources.next()?, server.http).ok());
        let header = "X-Forwarded-For: 203.0.113.1\r\n";
        let page = server.get_over(server.wire_from(PROXY).ok()?, "/", header).unwrap_or_default();
        page.starts_with("HTTP/1.0 503 ").then_some(())
    });
    // Others of the reserve do not take the proxy's, and clients of the proxy do not either.
    let own: Vec<TcpStream> =
        (0..40).filter_map(|_| connect_from(OTHER, server.http).ok()).collect();
    let before = server.dropped("http", "too_many_connections");
    let client = line_for("203.0.113.5");
    let idle: Vec<_> = (0..80).filter_map(|_| server.wire_after(PROXY, &client).ok()).collect();
    eventually("an end of all but two of a client's", || {
        let refused = server.dropped("http", "too_many_connections") - before;
        (refused >= 78).then_some(())
    });
    for _ in 0..20 {
        assert!(health_for(&server, "203.0.113.1").ends_with("ok\n"));
        let answer = server.get_over(server.wire_from(PROXY).unwrap(), "/healthz", "").unwrap();
        assert!(answer.ends_with("ok\n"), "its own question: {answer}");
    }
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    let asked = server.get_over(server.wire_after(PROXY, local).unwrap(), "/healthz", "").unwrap();
    assert!(asked.ends_with("ok\n"), "{asked}");
    assert!(held.len() > 50 && !own.is_empty() && idle.len() > 70);
    let told = |line: &str| line.contains("all places for HTTP connections are taken");
    assert_eq!(server.log().lines().filter(|line| told(line)).count(), 1, "{}", server.log());
}

fn line_for(client: &str) -> Vec<u8> {
    format!("PROXY TCP4 {client} 127.0.0.1 4711 80\r\n").into_bytes()
}

/// Version 2, for an IPv4 address.
fn binary_for(client: [u8; 4]) -> Vec<u8> {
    let head = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c";
    [&head[..], &client, &[127, 0, 0, 1, 0x12, 0x67, 0, 80]].concat()
}

fn proxy_protocol(server: &Server) {
    let host = server.http.to_string();
    let over = |first: &[u8]| {
        let wire = server.wire_after(PROXY, first).map_err(|error| error.to_string())?;
        Socket::try_over(wire, &host, &[])
    };
    // More of them than one address may have, and then as many of one as it may.
    let clients = (1..=2 * MOST as u8).map(|last| [203, 0, 113, last]);
    let mut all: Vec<Socket> = clients.map(|c| join(over(&binary_for(c)).unwrap())).collect();
    all.extend((1..MOST).map(|_| join(over(&line_for("203.0.113.1")).unwrap())));
    let refused = over(&binary_for([203, 0, 113, 1])).err().unwrap();
    assert!(refused.starts_with("429 "), "{refused}");
    assert_eq!(lines(server, "203.0.113.1", "limits.connections_per_address").len(), 1);
    // A client's own headers are no proxy's, even if it came through one.
    let wire = server.wire_after(PROXY, &line_for("203.0.113.1")).unwrap();
    let refused = Socket::try_over(wire, &host, &[("x-forwarded-for", "203.0.113.200")]);
    assert!(refused.err().unwrap().starts_with("429 "));
    let healthy = || {
        let wire = server.wire_after(PROXY, &line_for("203.0.113.1")).ok()?;
        server.get_over(wire, "/healthz", "").ok().filter(|answer| answer.ends_with("ok\n"))
    };
    eventually("an answer of /healthz to who is at the limit", healthy);
    // Through two proxies: the first speaks to the second in headers.
    let between = || server.wire_after(PROXY, b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n").unwrap();
    let refused = Socket::try_over(between(), &host, &[("x-forwarded-for", "203.0.113.1")]);
    assert!(refused.err().unwrap().starts_with("429 "));
    let _other =
        Socket::try_over(between(), &host, &[("x-forwarded-for", "203.0.113.99")]).unwrap();
    for unknown in [&b"PROXY UNKNOWN\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
        let _own: Vec<Socket> = (0..2 * MOST).map(|_| over(unknown).unwrap()).collect();
    }
}

#[test]
fn the_proxy_protocol_tells_the_client() {
    proxy_protocol(&server());
}

#[test]
fn the_proxy_protocol_stands_before_tls() {
    let limits = format!("limits: {{ connections_per_address: {MOST} }}\n");
    proxy_protocol(&Server::with_http_and_tls(TRUSTED, &limits));
}

#[test]
fn proxy_headers_that_cannot_be_taken_are_refused_with_the_reason() {
    let server = server();
    let answer = |from, first: &[u8]| {
        let mut stream = connect_from(from, server.http).unwrap();
        stream.write_all(first).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    for (first, why) in [
        (&b"PROXY TCP4 203.0.113.1 nobody 1 2\r\n"[..], "no line of version 1"),
        (&[b'P', b'R', b'O', b'X', b'Y', b' '].repeat(40), "more than 107 bytes"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c\0\0\0\0\0\0\0\0\0\0\0\0", "0x12, which is no TCP"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff", "more than 4096 bytes"),
    ] {
        let told = answer(PROXY, first);
        assert!(told.starts_with("HTTP/1.1 400 ") && told.contains(why), "{told}");
    }
    assert_eq!(server.dropped("http", "bad_proxy_header"), 4);
    assert_eq!(lines(&server, "127.0.0.7", "a trusted proxy is refused").len(), 1);
    for first in [line_for("203.0.113.1"), binary_for([203, 0, 113, 1])] {
        let told = answer(OTHER, &first);
        assert!(told.starts_with("HTTP/1.1 400 "), "{told}");
        assert!(told.contains("not under http.trusted_proxies: 127.0.0.8"), "{told}");
    }
    assert_eq!(server.dropped("http", "untrusted_proxy"), 2);
    assert_eq!(lines(&server, "127.0.0.8", "not under http.trusted_proxies").len(), 1);
    // A header that never ends.
    assert_eq!(answer(PROXY, b"PROXY TCP4 203.0.113.1"), "");
    assert_eq!(server.dropped("http", "too_slow"), 1);
    // A request that begins like one.
    let answer = server.get_over(server.wire_after(PROXY, b"").unwrap(), "/healthz", "").unwrap();
    assert!(answer.ends_with("ok\n"));
    let mut stream = connect_from(PROXY, server.http).unwrap();
    write!(stream, "PROPFIND / HTTP/1.0\r\nHost: {}\r\n\r\n", server.http).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 405 "), "{answer}");
}
