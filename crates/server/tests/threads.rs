//! Threads that carry calls and die, or stand still.

use server::config::Config;
use server::faults::Faults;
use server::health::Died;
use server::serve::{self, ServeError};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// A development server on free ports with a fault.
fn config(fault: &str) -> (Config, SocketAddr) {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("its address");
    let mut config = Config::development();
    config.http.bind = vec![address];
    config.media.port = 0;
    config.faults = Faults::default().with(fault).expect("a fault");
    (config, address)
}

/// The answer of `/healthz`: its status line and body; none while nobody listens.
fn health(address: SocketAddr) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET /healthz HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.lines().next()?.to_owned(), body.to_owned()))
}

#[test]
fn a_thread_that_panics_ends_the_server_with_its_name_and_reason() {
    let ends = ["media", "control", "mix"].map(|part| {
        let (config, _) = config(&format!("panic={part}"));
        (part, std::thread::spawn(move || serve::run(&config)))
    });
    for (part, end) in ends {
        let error = end.join().expect("no panic").expect_err(part);
        let died = Died { thread: format!("{part}-0"), why: "a fault made on purpose".into() };
        match &error {
            ServeError::Thread(told) => assert_eq!(*told, died),
            other => panic!("{part}: {other}"),
        }
        let text = error.to_string();
        assert!(text.contains(&died.thread) && text.contains(&died.why), "{text}");
    }
}

#[test]
fn health_names_a_thread_that_stands_still_until_it_goes_on() {
    // They end with this process.
    let servers = ["media", "control", "mix"].map(|part| {
        let (config, address) = config(&format!("stall={part}/6s"));
        std::thread::spawn(move || serve::run(&config));
        (part, address)
    });
    let mut seen = servers.map(|_| [false; 3]);
    let begin = Instant::now();
    while seen != [[true; 3]; 3] {
        assert!(begin.elapsed() < Duration::from_secs(60), "well, late, well: {seen:?}");
        for ((part, address), seen) in servers.iter().zip(&mut seen) {
            let Some((status, body)) = health(*address) else { continue };
            if status.contains(" 200 ") {
                assert_eq!(body, "ok\n");
                seen[0] |= true;
                seen[2] |= seen[1];
            } else {
                assert!(status.contains(" 503 "), "{status}");
                assert!(body.contains(&format!("{part}-0 ")), "{body}");
                seen[1] |= true;
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
