//! The networks of RFC 8867, section 5.

use super::flows::{MS, Network, Plan, bottleneck};
use super::steady;
use super::tcp::Tcp;
use std::time::Duration;

/// Kilobits a second from a second on.
type Capacity = &'static [(u64, u32)];

/// One of the networks.
pub struct Case {
    pub name: &'static str,
    pub seconds: u64,
    pub forward: Capacity,
    pub backward: Capacity,
    pub queue_ms: u32,
    pub flows: &'static [Plan],
    /// TCP connections: one that sends without end, or some that come and go.
    pub tcp: Competing,
    /// What does not hold of a run.
    pub holds: fn(&Case, &Network) -> Vec<String>,
}

/// Who else is on the link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Competing {
    Nobody,
    Long,
    /// So many that send files of 100 to 1000 kB and rest 10 s in the mean.
    Short(u32),
}

const fn flow(delay_ms: u64, from_s: u64, until_s: u64) -> Plan {
    Plan {
        delay: Duration::from_millis(delay_ms),
        jitter: Duration::from_millis(5),
        from_s,
        until_s,
        rests_s: None,
        most_bps: 20_000_000,
        backward: false,
    }
}

const WIDE: Capacity = &[(0, 100_000)];

pub const CASES: &[Case] = &[
    Case {
        name: "5.1 variable capacity",
        seconds: 100,
        forward: &[(0, 1000), (40, 2500), (60, 600), (80, 1000)],
        backward: WIDE,
        queue_ms: 300,
        flows: &[flow(50, 0, 100)],
        tcp: Competing::Nobody,
        holds: steady::alone,
    },
    Case {
        name: "5.2 variable, two flows",
        seconds: 125,
        forward: &[(0, 4000), (25, 2000), (50, 3500), (75, 1000), (100, 2000)],
        backward: WIDE,
        queue_ms: 300,
        flows: &[flow(50, 0, 125), flow(50, 0, 125)],
        tcp: Competing::Nobody,
        holds: steady::alone,
    },
    Case {
        name: "5.3 congested feedback",
        seconds: 100,
        forward: &[(0, 2000), (20, 1000), (40, 500), (60, 2000)],
        backward: &[(0, 2000), (35, 800), (70, 2000)],
        queue_ms: 300,
        flows: &[flow(50, 0, 100), Plan { backward: true, ..flow(50, 0, 100) }],
        tcp: Competing::Nobody,
        holds: steady::alone,
    },
    Case {
        name: "5.4 same kind",
        seconds: 120,
        forward: &[(0, 3500)],
        backward: WIDE,
        queue_ms: 300,
        flows: &[flow(50, 0, 120), flow(50, 20, 120), flow(50, 40, 120)],
        tcp: Competing::Nobody,
        holds: steady::fair,
    },
    Case {
        name: "5.5 round-trip times",
        seconds: 300,
        forward: &[(0, 4000)],
        backward: WIDE,
        queue_ms: 300,
        flows: &[
            flow(10, 0, 300),
            flow(25, 10, 300),
            flow(50, 20, 300),
            flow(100, 30, 300),
            flow(150, 40, 300),
        ],
        tcp: Competing::Nobody,
        holds: steady::fair,
    },
    Case {
        name: "5.6 long TCP",
        seconds: 120,
        forward: &[(0, 2000)],
        backward: WIDE,
        queue_ms: 300,
        flows: &[flow(50, 0, 120)],
        tcp: Competing::Long,
        holds: steady::beside_tcp,
    },
    Case {
        name: "5.7 short TCP",
        seconds: 300,
        forward: &[(0, 2000)],
        backward: WIDE,
        queue_ms: 300,
        flows: &[flow(50, 0, 300), flow(50, 0, 300)],
        tcp: Competing::Short(10),
        holds: steady::beside_tcp,
    },
    Case {
        name: "5.8 pause and resume",
        seconds: 120,
        forward: &[(0, 3500)],
        backward: WIDE,
        queue_ms: 300,
        flows: &[
            Plan { rests_s: Some((40, 60)), ..flow(50, 0, 120) },
            flow(50, 0, 120),
            flow(50, 0, 120),
        ],
        tcp: Competing::Nobody,
        holds: steady::fair,
    },
    Case {
        name: "a fall to a third",
        seconds: 90,
        forward: &[(0, 3000), (30, 1000), (50, 3000)],
        backward: WIDE,
        queue_ms: 300,
        flows: &[flow(25, 0, 90)],
        tcp: Competing::Nobody,
        holds: steady::falls_and_rises,
    },
];

/// The capacity in a second, in kbit/s.
pub fn at(capacity: Capacity, second: u64) -> u32 {
    capacity.iter().rev().find(|(from, _)| *from <= second).map_or(0, |(_, kbps)| *kbps)
}

/// Whether all flows send pictures in a second.
pub fn all_send(case: &Case, second: u64) -> bool {
    case.flows.iter().all(|plan| {
        let rests = plan.rests_s.is_some_and(|(from, until)| (from..until).contains(&second));
        (plan.from_s..plan.until_s).contains(&second) && !rests
    })
}

impl Case {
    /// Seconds at which something changes.
    pub fn changes(&self) -> Vec<u64> {
        let capacities = self.forward.iter().chain(self.backward).map(|(at, _)| *at);
        let flows = self.flows.iter().flat_map(|plan| {
            let rests = plan.rests_s.into_iter().flat_map(|(from, until)| [from, until]);
            [plan.from_s].into_iter().chain(rests)
        });
        capacities.chain(flows).collect()
    }
}

/// Plays a case.
pub fn run(case: &Case, seed: u64) -> Network {
    let queue = MS * case.queue_ms;
    let spec = |capacity, second| bottleneck(at(capacity, second), queue);
    let mut network = Network::new(seed, spec(case.forward, 0), spec(case.backward, 0));
    case.flows.iter().for_each(|plan| network.add(*plan));
    match case.tcp {
        Competing::Nobody => {}
        Competing::Long => network.tcp.push(Tcp::new(network.origin, 50 * MS, u64::MAX)),
        Competing::Short(count) => (0..count).for_each(|_| network.add_short_tcp(50 * MS)),
    }
    for second in 0..case.seconds {
        let changed = |capacity: Capacity| capacity.iter().any(|(at, _)| *at == second);
        let forward = changed(case.forward).then(|| spec(case.forward, second));
        let backward = changed(case.backward).then(|| spec(case.backward, second));
        network.set(forward, backward);
        network.run_until(second + 1);
    }
    network
}
