//! What a run came to, and what must hold of it.

use super::cases::{self, Case};
use super::flows::{Flow, Network, Second};

/// Seconds from a change until the flows are steady.
const SETTLES_S: u64 = 15;

/// What the steady parts of a run came to.
#[derive(Debug, Clone, Copy)]
pub struct Steady {
    /// Share of the bottleneck that carried media or TCP.
    pub used: f64,
    /// 95th percentile of the waits in its queue, in ms.
    pub queue_p95_ms: f64,
    pub loss: f64,
}

/// Seconds in which a case is steady: none of the first 15 s after its bottleneck or its flows changed.
fn is_steady(case: &Case, second: u64) -> bool {
    let changes = case.changes();
    !changes.iter().any(|at| (*at..at + SETTLES_S).contains(&second)) && second < case.seconds
}

pub fn steady(case: &Case, network: &Network, backward: bool) -> Steady {
    let capacity = if backward { case.backward } else { case.forward };
    let flows = || network.flows.iter().filter(|flow| flow.plan.backward == backward);
    let (mut bits, mut room, mut sent, mut lost, mut waits) = (0.0, 0.0, 0, 0, Vec::new());
    for second in (0..case.seconds).filter(|second| is_steady(case, *second)) {
        room += f64::from(cases::at(capacity, second)) * 1000.0;
        for flow in flows() {
            let row = flow.seconds.get(second as usize).copied().unwrap_or_default();
            bits += row.received_bps;
            (sent, lost) = (sent + row.sent, lost + row.lost);
        }
        bits += network.tcp_bits.get(second as usize).copied().filter(|_| !backward).unwrap_or(0.0);
    }
    for flow in flows() {
        waits.extend(flow.waits.iter().filter(|(at, _)| is_steady(case, *at)).map(|(_, ms)| *ms));
    }
    waits.sort_by(f32::total_cmp);
    let p95 = waits.get(waits.len() * 95 / 100).copied().unwrap_or(0.0);
    Steady {
        used: bits / room,
        queue_p95_ms: f64::from(p95),
        loss: f64::from(lost) / f64::from(sent.max(1)),
    }
}

/// Mean rate of each flow over the steady seconds, in bits a second.
pub fn shares(case: &Case, network: &Network) -> Vec<f64> {
    let rate = |flow: &Flow| {
        let rows: Vec<&Second> = (0..case.seconds)
            .filter(|second| is_steady(case, *second) && cases::all_send(case, *second))
            .filter_map(|second| flow.seconds.get(second as usize))
            .collect();
        rows.iter().map(|row| row.received_bps).sum::<f64>() / rows.len().max(1) as f64
    };
    network.flows.iter().map(rate).collect()
}

/// Alone on the link, or among its own kind: the link is used, its queue is short, little is lost.
pub fn alone(case: &Case, network: &Network) -> Vec<String> {
    let mut faults = Vec::new();
    for backward in [false, true] {
        if !case.flows.iter().any(|plan| plan.backward == backward) {
            continue;
        }
        let Steady { used, queue_p95_ms, loss } = steady(case, network, backward);
        if used < 0.8 {
            faults.push(format!("only {used:.2} of the link is used (backward: {backward})"));
        }
        if queue_p95_ms > 100.0 {
            faults.push(format!("{queue_p95_ms:.0} ms of queue (backward: {backward})"));
        }
        if loss > 0.01 {
            faults.push(format!("{:.1} % lost (backward: {backward})", 100.0 * loss));
        }
    }
    faults
}

/// The same, and nobody gets less than half of a fair share.
pub fn fair(case: &Case, network: &Network) -> Vec<String> {
    let mut faults = alone(case, network);
    let shares = shares(case, network);
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    if shares.iter().any(|share| *share < 0.5 * mean) {
        faults.push(format!("unfair: {shares:.0?} bit/s"));
    }
    faults
}

/// Beside TCP, which fills any queue: sound always fits, and the link is used.
pub fn beside_tcp(case: &Case, network: &Network) -> Vec<String> {
    let mut faults = Vec::new();
    let used = steady(case, network, false).used;
    if used < 0.8 {
        faults.push(format!("only {used:.2} of the link is used"));
    }
    for (flow, share) in shares(case, network).iter().enumerate() {
        if *share < 60_000.0 {
            faults.push(format!("flow {flow} gets {share:.0} bit/s, less than sound"));
        }
    }
    faults
}

/// The link falls to a third at 30 s and is whole again at 50 s: the flow is under it within 3 s, and back at 80 % within
/// 15 s.
pub fn falls_and_rises(case: &Case, network: &Network) -> Vec<String> {
    let mut faults = alone(case, network);
    let flow = &network.flows[0];
    let [high, low] = [0, 30].map(|second| f64::from(cases::at(case.forward, second)) * 1000.0);
    if !(30..33).any(|second| flow.seconds[second].estimate_bps <= low) {
        let bps = flow.seconds[32].estimate_bps;
        faults.push(format!("{bps:.0} bit/s 3 s after the link fell to {low:.0}"));
    }
    let back = (50..65).any(|second| flow.seconds[second].received_bps >= 0.8 * high);
    if !back {
        faults.push(format!("{:.0} bit/s at 65 s", flow.seconds[64].received_bps));
    }
    faults
}
