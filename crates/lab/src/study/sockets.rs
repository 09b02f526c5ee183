//! Study B: realtime sockets. Clients join one a second, each with its full rate; then the rate grows until answers fall
//! behind, for moim and for the npm SocketCluster server; then many clients that ping now and then, and a real browser.

mod concurrency;
mod figures;
mod knee;

use super::columns::LOAD_AVERAGE;
use super::session::Sessions;
use crate::record::{About, Cell, Plot, Row, Second, Table};
use figures::{BATCHED, CLIENTS, COLUMNS, load_average, measured, scenario};

/// Pings a second of each of them, as in the study.
const STUDYS_RATE: f64 = 1700.0;
fn tables() -> Vec<Table> {
    let throughput: Vec<_> =
        [("clients", "clients", 0)].into_iter().chain(COLUMNS).chain([LOAD_AVERAGE]).collect();
    let hint = format!(
        "The study's own way: one more client a second, each with the study's full rate. Every message is a ping with \
         an object, answered by a pong that counts. Latency is from the moment a ping was due until its answer was \
         read, the wait for the client's batch included. {BATCHED} Percentages are of what was offered after all \
         clients had come."
    );
    vec![
        Table::new("throughput", "Throughput", &hint, &throughput),
        knee::table(),
        knee::table_of_limits(),
        concurrency::table(),
    ]
}

struct Plan {
    ramp_clients: u32,
    ramp_per_s: f64,
    ramp_rate: f64,
    ramp_hold_s: f64,
    ladder: knee::Ladder,
    crowd: concurrency::Crowd,
}

const FULL: Plan = Plan {
    ramp_clients: CLIENTS,
    ramp_per_s: 1.0,
    ramp_rate: STUDYS_RATE,
    ramp_hold_s: 25.0,
    ladder: knee::FULL,
    crowd: concurrency::FULL,
};
const QUICK: Plan = Plan {
    ramp_clients: 20,
    ramp_per_s: 10.0,
    ramp_rate: 100.0,
    ramp_hold_s: 3.0,
    ladder: knee::QUICK,
    crowd: concurrency::QUICK,
};

/// What the study is, and its tables.
pub(super) fn about() -> About {
    let text = "The study ran SocketCluster 0.9 on an 8-core machine (5 load balancers, 5 workers, \
               2 brokers; 4, 3 and 1 for concurrency) with a 32-core client. Here one server \
               process answers (several where connections need more files than one may open), and the \
               load comes from the same machine, on CPUs of its own.";
    About::new("Study B: realtime sockets", text, tables()).found(
        "Up to 170 000 messages a second of 100 clients at a load average of 3.33 on 8 cores; 42 000 clients stayed with the \
         busiest worker at 60 % while they came and 45 % after.",
    )
}

/// What was found, in two sentences: what rates held, and how many clients.
fn found(rows: &[Row], held: &str) -> String {
    let all = rows.iter().filter(|row| row.table == "concurrency").map(|row| row.name.as_str());
    let all = all.take(1).collect::<String>();
    let of = |column| Row::shown(rows, "concurrency", &all, column, 0);
    format!(
        "{held} {} clients were live at the end, with the busiest thread at {} % while they came and {} % after.",
        of("live"),
        of("busiest_arriving_pct"),
        of("busiest_after_pct"),
    )
}

pub(super) async fn run(sessions: &mut Sessions, about: &mut About) -> Vec<Row> {
    let plan = if sessions.quick { QUICK } else { FULL };
    let tables = about.tables.clone();
    let mut rows = Vec::new();
    ramp(sessions, &plan, &tables[0], &mut rows, about).await;
    let held = knee::run(sessions, &plan.ladder, [&tables[1], &tables[2]], &mut rows, about).await;
    concurrency::run(sessions, &plan.crowd, &tables[3], &mut rows, about).await;
    about.ours = found(&rows, &held);
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
    let (clients, rate) = (plan.ramp_clients, plan.ramp_rate);
    let name = format!("{clients} clients, {} a second, {rate} messages/s each", plan.ramp_per_s);
    let row = Row::new("throughput", name)
        .cell("clients", Cell::number(clients.into()))
        .reference([("clients", 100.0), ("rate_per_client_per_s", STUDYS_RATE)])
        .reference([("offered_per_s", 170_000.0), ("load_average", 3.33)])
        .note("the study's load average is of 8 cores; it tells no latency");
    let seconds = f64::from(clients) / plan.ramp_per_s + plan.ramp_hold_s + 3.0;
    let target = sessions.serve(1);
    let text = scenario(&target, seconds, clients, plan.ramp_per_s, rate, 0);
    let session = match sessions.run("ramp", &text).await {
        Ok(session) => session,
        Err(reason) => return rows.push(row.rest(table, &reason)),
    };
    let row = measured(row, &session, rate).cell("load_average", load_average(&session));
    rows.push(row.rest(table, "the session has no sockets in it"));
    let Some(sockets) = session.sockets() else { return };
    let begins = std::iter::once(0.0).chain(sockets.seconds.iter().map(|second| second.t_s));
    let while_they_come: Vec<(f64, &Second)> = begins
        .zip(&sockets.seconds)
        .map(|(begin, second)| (second.t_s - begin, second))
        .filter(|(length, second)| second.live > 0 && second.offered > 0 && *length > 0.0)
        .collect();
    let points = |pick: fn(f64, &Second) -> Vec<Option<f64>>| {
        let point = |(length, second): &(f64, &Second)| (second.live.into(), pick(*length, second));
        while_they_come.iter().map(point).collect()
    };
    about.plots.push(Plot::new(
        (&format!("One more client a second at {rate} messages/s each"), "messages/s", "clients"),
        &["offered", "answered"],
        points(|s, second| [second.offered, second.answered].map(|n| Some(n as f64 / s)).to_vec()),
    ));
    about.plots.push(Plot::new(
        (&format!("Latency while clients join ({rate} messages/s each)"), "ms", "clients"),
        &["median", "p99"],
        points(|_, second| vec![second.p50_ms, second.p99_ms]),
    ));
}
