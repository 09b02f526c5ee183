//! What one socket that asks for as much as it can costs the server, and those who wait meanwhile.

use super::memory::{Raw, frame};
use crate::target::{Server, Socket};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a flood goes on, and how long it rests, before what it cost is read.
const WINDOW: Duration = Duration::from_millis(700);
/// So many times each; the median counts.
const ROUNDS: usize = 5;
/// Packets in a burst, and the time between bursts: 4000 a second, where the server takes them.
const BURST: usize = 8;
const PAUSE: Duration = Duration::from_millis(2);
/// The share of a core that a flood may cost.
const SHARE: f64 = 0.03;
/// Others who hear of what is published.
const LISTENERS: usize = 10;

/// What the hostile one sends as its how many-th packet.
type Flood = fn(usize) -> Value;

pub(super) fn joins(nth: usize) -> Value {
    let join = json!({ "room": format!("r{}", nth / 2), "name": "Mal", "session": "s" });
    match nth % 2 {
        0 => json!({ "event": "room.join", "data": join, "cid": nth + 2 }),
        _ => json!({ "event": "room.leave", "data": {}, "cid": nth + 2 }),
    }
}

pub(super) fn publications(nth: usize) -> Value {
    let data = json!({ "channel": "news", "data": "x".repeat(200) });
    json!({ "event": "#publish", "data": data, "cid": nth + 2 })
}

/// Floods on and off in turn; the share of a core that it costs more, and how many answers came.
fn cost(server: &Server, flood: Flood) -> (f64, usize) {
    let mut hostile = Raw::connect(server);
    hostile.0.tcp().set_nonblocking(true).unwrap();
    let (mut extra, mut answers, mut memory) = (Vec::new(), 0, [0; 1 << 16]);
    let (mut nth, mut left) = (0, Vec::new());
    for _ in 0..ROUNDS {
        let mut shares = [0.0; 2];
        for (share, on) in shares.iter_mut().zip([false, true]) {
            let (cpu, begin) = (server.cpu(), Instant::now());
            while begin.elapsed() < WINDOW {
                while on && left.len() < 4096 {
                    left.extend(frame(1, flood(nth).to_string().as_bytes()));
                    nth += 1;
                    if nth % BURST == 0 {
                        break;
                    }
                }
                // It does not fit where the server stopped reading.
                if on && let Ok(count) = hostile.0.write(&left) {
                    left.drain(..count);
                }
                while let Ok(count @ 1..) = hostile.0.read(&mut memory) {
                    let rids = memory[..count].windows(5).filter(|part| part == b"\"rid\"");
                    answers += rids.count();
                }
                sleep(PAUSE);
            }
            let used = (server.cpu() - cpu).as_secs_f64();
            *share = used / begin.elapsed().as_secs_f64();
        }
        extra.push(shares[1] - shares[0]);
    }
    extra.sort_by(f64::total_cmp);
    (extra[ROUNDS / 2], answers)
}

#[test]
fn one_socket_that_floods_costs_little_and_keeps_nobody_waiting() {
    let server = Server::with("guests: all\n");
    let mut listeners: Vec<Socket> = (0..LISTENERS).map(|_| Socket::connect(&server)).collect();
    for listener in &mut listeners {
        listener.ask("#subscribe", json!({ "channel": "news" }));
    }
    let floods: [(&str, Flood); 2] = [("joins", joins), ("publications", publications)];
    for (name, flood) in floods {
        let (share, answers) = cost(&server, flood);
        eprintln!("{name}: {:.2} % of a core, {answers} answers", 100.0 * share);
        assert!(answers > 20, "{name}: {answers} answers");
        assert!(share <= SHARE, "{name}: {:.2} % of a core", 100.0 * share);
    }
    Socket::connect(&server).ask("ping", Value::Null);
}
