//! What is compared: each metric, whose figure it is, and which way is worse.

use crate::base::{percentile, sorted};
use crate::observe::{metrics, sockets};

/// Server CPU a packet, in or out.
pub(super) const SERVER_US: &str = "server_us_per_packet";
/// The server's largest memory.
pub(super) const SERVER_MIB: &str = "server_mib";
/// What came through, in packets a second.
pub(super) const DELIVERED: &str = "delivered_per_s";

/// Whose figure of a run is compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Whose {
    /// The run's only one.
    Run,
    /// Half of the people have less.
    Half,
    /// One person of twenty has a worse one.
    Twentieth,
}

/// Which way a metric is worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    More,
    Less,
    /// More of it may be better, and may be worse: bytes, for example.
    Neither,
}

/// A metric that is compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Metric {
    /// Its name: of [`metrics::NAMES`], or one of the above.
    pub(super) name: &'static str,
    pub(super) whose: Whose,
    /// Which way is worse.
    pub(super) worse: Way,
    /// Smaller figures count as this one: a difference of little from nothing is none.
    pub(super) least: f64,
}

impl Metric {
    /// All of them.
    pub(super) fn all() -> Vec<Self> {
        let of_run = |name, worse, least| {
            let whose = Whose::Run;
            Self { name, whose, worse, least }
        };
        let mut all = vec![
            of_run(SERVER_US, Way::More, 0.1),
            of_run(SERVER_MIB, Way::More, 10.0),
            of_run(DELIVERED, Way::Less, 1.0),
            of_run(sockets::PONG_MS, Way::More, 5.0),
            of_run(sockets::ANSWERED_PCT, Way::Less, 100.0),
            of_run(sockets::CONNECT_MS, Way::More, 50.0),
            of_run(sockets::LOST, Way::More, 1.0),
        ];
        let of_people = metrics::NAMES.iter().filter(|name| !sockets::NAMES.contains(name));
        for name in of_people {
            for whose in [Whose::Half, Whose::Twentieth] {
                let (worse, least) = (worse(name), least(name));
                all.push(Self { name, whose, worse, least });
            }
        }
        all
    }

    /// The figure of a run.
    pub(super) fn of_run(&self, figures: &[f64]) -> Option<f64> {
        let percent = match (self.whose, self.worse) {
            (Whose::Run | Whose::Half, _) => 50.0,
            (Whose::Twentieth, Way::More) => 95.0,
            (Whose::Twentieth, Way::Less | Way::Neither) => 5.0,
        };
        percentile(&sorted(figures.iter().copied()), percent)
    }

    /// In words, with its unit.
    pub(super) fn title(&self) -> String {
        let name = match self.name {
            SERVER_US => "server CPU, µs a packet in or out",
            SERVER_MIB => "server memory, MiB",
            DELIVERED => "delivered, packets/s",
            name => name,
        };
        match self.whose {
            Whose::Run => name.into(),
            Whose::Half => format!("{name}, half of the people"),
            Whose::Twentieth if self.worse == Way::Neither => {
                format!("{name}, the twentieth with least")
            }
            Whose::Twentieth => format!("{name}, the worst twentieth"),
        }
    }
}

/// Which way a metric of people is worse. Bytes that come, an estimate and pictures sent again say nothing by themselves. After a
/// freeze a client gets what was queued, which is more of them.
fn worse(name: &str) -> Way {
    match name {
        "estimate_kbps" | "received_kbps" | "retransmitted_pct" => Way::Neither,
        "frames_per_second" | "frame_height" => Way::Less,
        name if name.starts_with("mos_") => Way::Less,
        _ => Way::More,
    }
}

/// What nobody would notice is a small part of these.
fn least(name: &str) -> f64 {
    match name {
        "jitter_ms" | "rtt_ms" | "transit_ms" => 20.0,
        "freeze_ratio" | "paused_ratio" | "cpu_limited_ratio" | "bandwidth_limited_ratio" => 0.05,
        "join_to_connected_ms" | "join_to_first_audio_ms" | "join_to_first_frame_ms" => 200.0,
        name if name.ends_with("_ms") => 50.0,
        _ => 1.0,
    }
}
