//! A receiver floods what it says of its path (REMB), with values that change. That costs little, gives it no more, and
//! takes nothing from others.

use crate::peer::{Peer, run, run_for};
use crate::raw::{Raw, connect};
use crate::target::{PATIENCE, Server};
use rtp::rtcp;
use std::time::{Duration, Instant};
use transport::Lacks;

/// From one turn to the next: 125 compounds a second, of 47 words each.
const TURN: Duration = Duration::from_millis(8);
const WORDS: u64 = 47;
/// How long the flood goes on, and how long it rests, before what it cost is read; twice.
const WINDOW: Duration = Duration::from_millis(700);
/// The share of a core that it may cost, as the lower one of two. Beside other programs a wake costs more at times.
const SHARE: f64 = 0.10;

/// One compound of words that have nothing to do with each other.
fn flood(hostile: &mut Raw, turn: u64) {
    let mut compound = Vec::new();
    for nth in 0..WORDS {
        let word = (turn * WORDS + nth).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (nth % 64);
        rtcp::remb(&mut compound, 0xBAD, word, &[]);
    }
    hostile.send_rtcp(&compound);
}

#[test]
fn a_flood_of_told_rates_costs_little_and_takes_nothing_from_others() {
    let server = Server::start("{}");
    let (mut publisher, _seat) = Peer::join(&server, "call", "ada", 1);
    let alone = Lacks { feedback: true, feedback_on_sound: true, ..Lacks::default() };
    let join = |last| Raw::join_lacking(&server, ([127, 0, 0, last], "call"), &[], (2, 1), alone);
    let ((mut honest, _first), (mut hostile, _second)) = (join(2), join(66));
    run(&mut [&mut publisher], "pictures of the publisher", |_| {
        honest.step();
        hostile.step();
        honest.streams.len() >= 2 && hostile.streams.len() >= 2
    });
    connect(&mut [&mut honest, &mut hostile]);
    let (mut extra, mut turn, mut of_windows) = (f64::MAX, 0, [0; 2]);
    let before = [&honest, &hostile].map(Raw::bytes);
    for _ in 0..2 {
        let mut shares = [0.0; 2];
        for (at, on) in [false, true].into_iter().enumerate() {
            // The honest one says that all fits.
            let mut compound = Vec::new();
            rtcp::remb(&mut compound, 1, 5_000_000, &[]);
            honest.send_rtcp(&compound);
            let (cpu, begin, came) = (server.cpu(), Instant::now(), honest.bytes());
            let mut due = begin;
            run_for(PATIENCE, &mut [&mut publisher], "a window", |_| {
                honest.step();
                hostile.step();
                if on && due <= Instant::now() {
                    due = (due + TURN).max(Instant::now());
                    flood(&mut hostile, turn);
                    turn += 1;
                }
                begin.elapsed() >= WINDOW
            });
            of_windows[at] += honest.bytes() - came;
            shares[at] = (server.cpu() - cpu).as_secs_f64() / begin.elapsed().as_secs_f64();
        }
        extra = extra.min(shares[1] - shares[0]);
    }
    let [to_honest, to_hostile] = [honest.bytes() - before[0], hostile.bytes() - before[1]];
    eprintln!(
        "{:.2} % of a core, {to_hostile} bytes, {to_honest} to the honest one",
        100.0 * extra
    );
    assert!(turn > 50, "{turn} turns");
    assert!(extra <= SHARE, "{:.2} % of a core", 100.0 * extra);
    assert!(to_hostile <= 2 * to_honest, "{to_hostile} bytes, {to_honest} to the honest one");
    let [calm, under] = of_windows;
    assert!(4 * under >= 3 * calm, "the honest one got {under} bytes, and {calm} before");
    let lost: u64 = honest.streams.values().map(|stream| stream.gaps()).sum();
    assert_eq!(lost, 0, "the honest receiver loses");
    assert!(to_honest > 20_000, "something flows: {to_honest}");
}
