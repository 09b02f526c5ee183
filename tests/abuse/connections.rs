//! Half requests and idle connections of one address: everybody else gets in (door 3).

use crate::target::{Server, Socket, connect_from, eventually};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Where the attack comes from; everybody else has another address.
const HOSTILE: [u8; 4] = [127, 0, 0, 66];
/// Connections of the attack.
const CONNECTIONS: usize = 1000;
/// How long others may wait for `/healthz` and for a join meanwhile, as the median of [`LOOKS`].
const PROMPT: Duration = Duration::from_millis(200);
const LOOKS: usize = 9;

/// Who connects and sends this, and no more.
fn hold(server: &Server, media: bool, data: &[u8]) -> Vec<TcpStream> {
    let to = if media { server.media } else { server.http };
    let held = (0..CONNECTIONS).filter_map(|_| {
        let mut stream = connect_from(HOSTILE, to).ok()?;
        // One that is refused may be closed already.
        let _ = stream.write_all(data);
        Some(stream)
    });
    held.collect()
}

/// Whether the server has closed it.
fn is_closed(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match (&*stream).read(&mut [0; 512]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

fn median(mut look: impl FnMut(usize)) -> Duration {
    let mut took: Vec<Duration> = (0..LOOKS)
        .map(|index| {
            let begin = Instant::now();
            look(index);
            begin.elapsed()
        })
        .collect();
    took.sort();
    took[LOOKS / 2]
}

fn healthy(server: &Server) {
    let mut stream = connect_from([127, 0, 0, 1], server.http).unwrap();
    write!(stream, "GET /healthz HTTP/1.0\r\nHost: {}\r\n\r\n", server.http).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("ok\n"), "{answer}");
}

#[test]
fn half_requests_of_one_address_keep_nobody_out_and_are_closed() {
    let server = Server::with("");
    let attacks: [(bool, &[u8]); 3] = [
        (false, b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: "),
        (false, b""),
        (true, b"\x00\x04junk"),
    ];
    for (attack, (media, data)) in attacks.into_iter().enumerate() {
        let held = hold(&server, media, data);
        let health = median(|_| healthy(&server));
        let join = median(|index| {
            let mut socket = Socket::connect_from([127, 0, 0, 2], &server);
            let name = json!({ "room": format!("r{attack}-{index}"), "name": "Ann" });
            socket.ask("room.join", name);
        });
        eprintln!("attack {attack}: /healthz {health:?}, a join {join:?}");
        assert!(health <= PROMPT, "/healthz took {health:?}");
        assert!(join <= PROMPT, "a join took {join:?}");
        let mut media_of_another = connect_from([127, 0, 0, 2], server.media).unwrap();
        media_of_another.write_all(b"\x00\x01").unwrap();
        assert!(!is_closed(&media_of_another), "media TCP takes others");
        let place = if media { "tcp" } else { "http" };
        assert!(server.dropped(place, "too_many_of_address") > 0, "one address has a bound");
        eventually("the end of every hostile connection", || {
            held.iter().all(is_closed).then_some(())
        });
    }
    assert!(
        server.dropped("http", "too_slow") > 0 && server.dropped("tcp", "silent_connection") > 0
    );
}
