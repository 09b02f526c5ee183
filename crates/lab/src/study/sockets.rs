//! Study B: realtime sockets. Throughput (clients join one a second, each pings at a fixed rate)
//! and concurrency (many clients that ping now and then, and a real browser among them).

use super::columns::{ANSWERED, GENERATOR_CPU, LATENCY_P99, LOAD_AVERAGE, percent};
use super::session::{Session, Sessions, limits};
use crate::record::{About, Cell, Latency, Plot, Row, Second, Table};

/// Clients of the throughput test, as in the study.
const CLIENTS: u32 = 100;
/// Below this share of answers (percent) a stage did not hold.
const HOLDS_PCT: f64 = 99.0;

fn tables() -> Vec<Table> {
    let throughput = [
        ("clients", "clients", 0),
        ("rate_per_client_per_s", "pings/s each", 0),
        ("offered_per_s", "offered/s", 0),
        ("made_pct", "sent %", 2),
        ("answered_per_s", "answered/s", 0),
        ANSWERED,
        ("latency_p50_ms", "median ms", 2),
        LATENCY_P99,
        ("server_cpu_cores", "server CPU cores", 2),
        ("us_per_answer", "server µs an answer", 1),
        GENERATOR_CPU,
        ("counts_not_rising", "counts not rising", 0),
        LOAD_AVERAGE,
    ];
    let concurrency = [
        ("connections", "connections", 0),
        ("arrival_per_s", "arrivals/s", 0),
        ("ping_every_s", "ping every s", 1),
        ("live", "live at the end", 0),
        ("closed", "closed early", 0),
        ANSWERED,
        LATENCY_P99,
        ("connect_p99_ms", "connect p99 ms", 1),
        ("busiest_arriving_pct", "busiest thread % while they arrive", 0),
        ("busiest_after_pct", "busiest thread % after", 0),
        ("server_rss_mib", "server MiB", 0),
        ("kib_per_connection", "KiB a connection", 1),
        LOAD_AVERAGE,
        ("by_hand_pings", "pings by hand", 0),
        ("by_hand_answered", "answered by hand", 0),
        ("by_hand_p99_ms", "by hand p99 ms", 1),
        ("by_hand_lost", "browser's socket lost", 0),
    ];
    vec![
        Table::new(
            "throughput",
            "Throughput",
            "Every message is a ping with an object, answered by a pong that counts. Latency is \
             from the moment a ping was due until its answer was read, the client's own batches \
             (5 ms) included. Percentages are of what was offered after all clients had come.",
            &throughput,
        ),
        Table::new(
            "concurrency",
            "Concurrency",
            "Clients arrive steadily, ping now and then and stay; a real browser stays connected \
             all the time and pings once a second.",
            &concurrency,
        ),
    ]
}

struct Plan {
    ramp_clients: u32,
    ramp_per_s: f64,
    ramp_rate: f64,
    ramp_hold_s: f64,
    rates: &'static [f64],
    stage_s: f64,
    connections: u32,
    ping_every_s: f64,
    hold_s: f64,
}

const FULL: Plan = Plan {
    ramp_clients: CLIENTS,
    ramp_per_s: 1.0,
    ramp_rate: 425.0,
    ramp_hold_s: 25.0,
    rates: &[100.0, 425.0, 600.0, 850.0, 1275.0, 1700.0],
    stage_s: 20.0,
    connections: 18_000,
    ping_every_s: 6.0,
    hold_s: 60.0,
};
const QUICK: Plan = Plan {
    ramp_clients: 20,
    ramp_per_s: 10.0,
    ramp_rate: 100.0,
    ramp_hold_s: 3.0,
    rates: &[100.0, 1700.0],
    stage_s: 6.0,
    connections: 320,
    ping_every_s: 2.0,
    hold_s: 6.0,
};

/// What the study is, and its tables.
pub(super) fn about() -> About {
    let text = "The study ran SocketCluster 0.9 on an 8-core machine (5 load balancers, 5 workers, \
               2 brokers; 4, 3 and 1 for concurrency) with a 32-core client. Here one server \
               process answers, the load comes from one thread on the same machine.";
    About::new("Study B: realtime sockets", text, tables())
}

pub(super) async fn run(sessions: &mut Sessions, about: &mut About) -> Vec<Row> {
    let plan = if sessions.quick { QUICK } else { FULL };
    let tables = about.tables.clone();
    let mut rows = Vec::new();
    ramp(sessions, &plan, &tables[0], &mut rows, about).await;
    stages(sessions, &plan, &tables[0], &mut rows, about).await;
    concurrency(sessions, &plan, &tables[1], &mut rows, about).await;
    about.not_shown.push(
        "The study's balance over several workers: moim answers in one process, there is no \
         balancer to spread wrongly."
            .into(),
    );
    rows
}

/// The study's own way: clients come one after the other, each with its full rate.
async fn ramp(
    sessions: &mut Sessions,
    plan: &Plan,
    table: &Table,
    rows: &mut Vec<Row>,
    about: &mut About,
) {
    let clients = plan.ramp_clients;
    let name = format!("{clients} clients, {} a second", plan.ramp_per_s);
    let row = Row::new("throughput", name).cell("clients", Cell::number(clients.into()));
    let seconds = f64::from(clients) / plan.ramp_per_s + plan.ramp_hold_s + 3.0;
    let text = scenario(sessions, seconds, clients, plan.ramp_per_s, plan.ramp_rate, 0);
    let session = match sessions.run("ramp", &text).await {
        Ok(session) => session,
        Err(reason) => return rows.push(row.rest(table, &reason)),
    };
    rows.push(throughput_row(row, &session, plan.ramp_rate));
    let Some(sockets) = session.sockets() else { return };
    let point = |second: &Second| (f64::from(second.live), vec![second.p50_ms, second.p99_ms]);
    let while_they_come = sockets.seconds.iter().filter(|second| second.live > 0);
    about.plots.push(Plot::new(
        (&format!("Latency while clients join ({} pings/s each)", plan.ramp_rate), "ms", "clients"),
        &["median", "p99"],
        while_they_come.map(point).collect(),
    ));
}

/// Rates rise until the answers no longer keep up, or the generator is the limit.
async fn stages(
    sessions: &mut Sessions,
    plan: &Plan,
    table: &Table,
    rows: &mut Vec<Row>,
    about: &mut About,
) {
    let mut over: Option<String> = None;
    let mut points = Vec::new();
    let mut best = 0.0f64;
    for rate in plan.rates {
        let is_last = *rate == 1700.0;
        let name = format!("{CLIENTS} clients at {rate} pings/s each");
        let row = Row::new("throughput", name)
            .cell("clients", Cell::number(CLIENTS.into()))
            .cell("rate_per_client_per_s", Cell::number(*rate));
        let row = if is_last {
            let studys = [("clients", 100.0), ("rate_per_client_per_s", 1700.0)];
            row.reference(studys)
                .reference([("offered_per_s", 170_000.0), ("load_average", 3.33)])
                .note("the study's load average is of 8 cores; it tells no latency")
        } else {
            row
        };
        if let Some(why) = over.as_ref().filter(|_| !is_last || !sessions.quick) {
            rows.push(row.rest(table, why));
            continue;
        }
        if sessions.quick && is_last {
            rows.push(row.rest(table, "--quick does not go to the limit"));
            continue;
        }
        let text = scenario(sessions, plan.stage_s + 4.0, CLIENTS, 100.0, *rate, 0);
        let session = match sessions.run(&format!("stage-{rate}"), &text).await {
            Ok(session) => session,
            Err(reason) => {
                rows.push(row.rest(table, &reason));
                continue;
            }
        };
        let row = throughput_row(row, &session, *rate);
        let value = |key: &str| row.cells.get(key).and_then(|cell| cell.value);
        let answered = value("answered_pct").unwrap_or(0.0);
        if let Some(offered) = value("offered_per_s") {
            points.push((offered, vec![value("latency_p50_ms"), value("latency_p99_ms")]));
        }
        best = best.max(value("answered_per_s").unwrap_or(0.0));
        // Late timers alone end nothing: they are in the latency, and told with the row.
        let made = value("made_pct").unwrap_or(0.0);
        let saturated = made < HOLDS_PCT || session.generator_was_saturated();
        if answered < HOLDS_PCT || saturated {
            let whose = match saturated {
                true => "the generator was the limit",
                false => "the server was the limit",
            };
            over = Some(format!(
                "not run: at {rate} pings/s each {answered:.1} % was answered in time and {whose}"
            ));
        }
        rows.push(row);
    }
    about.shown.push(format!("Up to {best:.0} pings a second were answered by this server."));
    about.plots.push(Plot::new(
        ("Latency over rate", "ms", "pings offered a second"),
        &["median", "p99"],
        points,
    ));
    if let Some(why) = over {
        about.not_shown.push(format!("Higher rates: {why}."));
    }
}

async fn concurrency(
    sessions: &mut Sessions,
    plan: &Plan,
    table: &Table,
    rows: &mut Vec<Row>,
    about: &mut About,
) {
    let (connections, arrival_s) = (plan.connections, f64::from(plan.connections) / 160.0);
    let row = Row::new("concurrency", format!("{connections} clients, 160 a second"))
        .cell("connections", Cell::number(connections.into()))
        .cell("arrival_per_s", Cell::number(160.0))
        .cell("ping_every_s", Cell::number(plan.ping_every_s))
        .reference([
            ("connections", 42_000.0),
            ("arrival_per_s", 160.0),
            ("ping_every_s", 6.0),
            ("busiest_arriving_pct", 60.0),
            ("busiest_after_pct", 45.0),
            ("load_average", 2.0),
        ])
        .note("the study's load average is “under 2” of 8 cores, its memory “negligible”");
    let chromium = u32::from(sessions.has_chromium());
    let seconds = arrival_s + plan.hold_s + 4.0;
    let text = scenario(sessions, seconds, connections, 160.0, 1.0 / plan.ping_every_s, chromium);
    let session = match sessions.run("concurrency", &text).await {
        Ok(session) => session,
        Err(reason) => return rows.push(row.rest(table, &reason)),
    };
    let Some(sockets) = session.sockets() else {
        return rows.push(row.rest(table, "the session has no sockets in it"));
    };
    let closed: u64 = sockets.closed.values().sum();
    let end_s = session.summary.duration_s + 1.0;
    let p99 = |latency: Option<Latency>| latency.map(|latency| latency.p99_ms);
    let mut row = row
        .cell("live", Cell::number(sockets.live.into()))
        .cell("closed", Cell::number(closed as f64))
        .measured("answered_pct", sockets.whole.answered_pct())
        .measured("latency_p99_ms", p99(sockets.whole.latency))
        .measured("connect_p99_ms", p99(sockets.connect))
        .measured(
            "busiest_arriving_pct",
            percent(session.busiest_server_thread(0.0, arrival_s.max(3.5))),
        )
        .measured("busiest_after_pct", percent(session.busiest_server_thread(arrival_s, end_s)))
        .measured("server_rss_mib", sockets.server_rss_mib)
        .measured("kib_per_connection", sockets.kib_per_connection)
        .measured("load_average", session.load_average);
    row = match &sockets.by_hand {
        Some(seen) => row
            .cell("by_hand_pings", Cell::number(seen.pings as f64))
            .cell("by_hand_answered", Cell::number(seen.answered as f64))
            .measured("by_hand_p99_ms", p99(seen.latency))
            .cell("by_hand_lost", Cell::number(seen.lost as f64)),
        None => row.rest(table, "there was no browser in this session"),
    };
    for (why, count) in &sockets.failed {
        row = row.note(format!("{count} did not come up: {why}"));
    }
    row = limits(row, &session);
    rows.push(row);
    let live = |second: &Second| (second.t_s, vec![Some(f64::from(second.live))]);
    about.plots.push(Plot::new(
        ("Clients over time", "live", "seconds"),
        &["live"],
        sockets.seconds.iter().map(live).collect(),
    ));
    let latency = |second: &Second| (second.t_s, vec![second.p50_ms, second.p99_ms]);
    about.plots.push(Plot::new(
        ("Latency over time, while they come and stay", "ms", "seconds"),
        &["median", "p99"],
        sockets.seconds.iter().map(latency).collect(),
    ));
    about.shown.push(format!(
        "{} of {connections} clients were live at the end, of one server process.",
        sockets.live
    ));
    about.not_shown.push(format!(
        "42 000 clients: one process may open 20 000 files here, so {connections} were shown and \
         nothing beyond is extrapolated."
    ));
}

/// The scenario of a group of sockets.
fn scenario(
    sessions: &Sessions,
    seconds: f64,
    connections: u32,
    arrival_per_s: f64,
    rate: f64,
    chromium: u32,
) -> String {
    format!(
        "{}duration: {seconds:.0}s\nsockets: [{{ connections: {connections}, arrival_per_second: \
         {arrival_per_s}, rate_per_second: {rate}, chromium: {chromium} }}]\n",
        sessions.serve(1)
    )
}

fn throughput_row(row: Row, session: &Session, rate: f64) -> Row {
    let row = row.cell("rate_per_client_per_s", Cell::number(rate));
    let Some(sockets) = session.sockets() else { return row };
    let steady = sockets.steady.as_ref();
    let latency = steady.and_then(|phase| phase.latency);
    let answered_per_s = steady.and_then(|phase| phase.answered_per_s());
    let cores = session.server_cores();
    let row = row
        .measured("offered_per_s", steady.map(|phase| phase.offered as f64 / phase.seconds))
        .measured(
            "made_pct",
            steady.map(|phase| 100.0 * phase.made as f64 / phase.offered.max(1) as f64),
        )
        .measured("answered_per_s", answered_per_s)
        .measured("answered_pct", steady.and_then(|phase| phase.answered_pct()))
        .measured("latency_p50_ms", latency.map(|latency| latency.p50_ms))
        .measured("latency_p99_ms", latency.map(|latency| latency.p99_ms))
        .measured("server_cpu_cores", cores)
        .measured("us_per_answer", us_per_answer(session))
        .cell("generator_cpu_cores", Cell::number(session.summary.generator.cpu_cores))
        .cell("counts_not_rising", Cell::number(sockets.counts_not_rising as f64))
        .measured("load_average", session.load_average);
    limits(row, session)
}

/// Server CPU of the whole run over all answers of the run.
fn us_per_answer(session: &Session) -> Option<f64> {
    let answered = session.sockets()?.whole.answered;
    let mut before_ms = 0;
    let mut cpu_us = 0.0;
    for record in &session.machine {
        let cores = record.server.as_ref()?.cpu_cores?;
        cpu_us += cores * (record.t_ms - before_ms) as f64 * 1000.0;
        before_ms = record.t_ms;
    }
    (answered > 0).then(|| cpu_us / answered as f64)
}
