//! The same rooms at moim and at the servers that stand beside it: each in turn, on the same CPUs.

use super::beside::Beside;
use super::repeated::{median, spread};
use super::session::{Session, Sessions};
use crate::record::{Row, Table};
use std::collections::BTreeSet;

/// A server that is asked.
struct Server {
    /// As rows call it.
    name: String,
    /// A word for the names of its sessions.
    word: String,
    /// What it is; none: moim's own.
    beside: Option<Beside>,
}

/// moim's server and those beside it.
pub(super) struct Others {
    servers: Vec<Server>,
    /// Those that could not be started, and why.
    failed: Vec<(String, String)>,
}

/// What is run at each of them.
pub(super) struct Plan<'a> {
    /// Its name in rows and sessions, such as `10 people`.
    pub name: String,
    /// All of its scenario but name and target.
    pub text: String,
    /// How often.
    pub rounds: u32,
    /// The column whose least and most are told where there are several rounds.
    pub spread: &'a str,
}

impl Others {
    /// Starts each of them once; none where nobody is to stand beside moim.
    pub async fn meet(sessions: &mut Sessions) -> Option<Self> {
        let asked = sessions.asked.beside.clone();
        if asked.is_empty() {
            return None;
        }
        let ours = Server { name: "moim".into(), word: "moim".into(), beside: None };
        let mut this = Self { servers: vec![ours], failed: Vec::new() };
        for beside in asked {
            let word = beside.word().to_owned();
            match sessions.meet(&beside).await {
                Ok(name) => this.servers.push(Server { name, word, beside: Some(beside) }),
                Err(reason) => this.failed.push((word, reason)),
            }
        }
        Some(this)
    }

    /// Runs a plan at each in turn; a row each, the median of its rounds. `figures` makes a row of a session.
    pub async fn run(
        &self,
        sessions: &mut Sessions,
        table: &Table,
        plan: &Plan<'_>,
        figures: impl Fn(Row, &Session) -> Row,
    ) -> Vec<Row> {
        let mut made: Vec<Vec<Row>> = self.servers.iter().map(|_| Vec::new()).collect();
        for round in 1..=plan.rounds {
            for (server, made) in self.servers.iter().zip(&mut made) {
                let name = format!("{}-{}-{round}", plan.name.replace(' ', "-"), server.word);
                let ran = match &server.beside {
                    Some(beside) => sessions.run_beside(beside, &name, &plan.text).await,
                    None => sessions.run_once(&name, &(sessions.serve(1) + &plan.text)).await,
                };
                let row = Row::new(&table.id, &*server.name);
                made.push(match ran {
                    Ok(session) => {
                        figures(row, &session).rest(table, "a session has no such figure")
                    }
                    Err(reason) => row.rest(table, &reason),
                });
            }
        }
        let rows = self.servers.iter().zip(made);
        let rows = rows.map(|(server, made)| one(table, plan, &server.name, &made));
        let failed = self.failed.iter().map(|(word, reason)| {
            Row::new(&table.id, format!("{}, {word}", plan.name)).rest(table, reason)
        });
        rows.chain(failed).collect()
    }
}

/// The row of a server's rounds.
fn one(table: &Table, plan: &Plan<'_>, server: &str, rounds: &[Row]) -> Row {
    let name = format!("{}, {server}", plan.name);
    let mut row = match rounds {
        [only] => Row { name, ..only.clone() },
        _ => median(table, &name, rounds),
    };
    let column = table.columns.iter().find(|column| column.key == plan.spread);
    let ends = spread(table, "", rounds);
    let ends = ends.cells.get(plan.spread).and_then(|cell| cell.word.as_deref());
    if rounds.len() > 1 {
        if let Some((column, ends)) = column.zip(ends) {
            row = row.note(format!("{}: {ends} in {} runs", column.title, rounds.len()));
        }
        let notes: BTreeSet<&String> = rounds.iter().flat_map(|row| &row.notes).collect();
        row.notes.extend(notes.into_iter().cloned());
    }
    row
}

/// What a server spends on a packet that comes to somebody, in µs: of any server, since the bots count the packets.
pub(super) fn us_per_packet(session: &Session) -> Option<f64> {
    let packets = session.summary.delivery.as_ref()?.packets_per_s;
    let cores = session.server_cores()?;
    (packets > 0.0).then(|| 1e6 * cores / packets)
}

/// A sentence that sets their figures in a column side by side; none where moim's or all others' are missing.
pub(super) fn in_words(
    rows: &[Row],
    what: &str,
    (column, unit, digits): (&str, &str, u8),
) -> Option<String> {
    let prefix = format!("{what}, ");
    let told = |row: &Row| {
        let server = row.name.strip_prefix(&prefix)?.to_owned();
        let figure = row.cells.get(column)?.value?;
        Some(format!("{server} {figure:.*} {unit}", usize::from(digits)))
    };
    let told: Vec<String> = rows.iter().filter_map(told).collect();
    (told.len() > 1 && told[0].starts_with("moim "))
        .then(|| format!("{what}: {}.", told.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Cell;

    fn plan(rounds: u32) -> Plan<'static> {
        Plan { name: "10 people".into(), text: String::new(), rounds, spread: "cpu_pct" }
    }

    #[test]
    fn a_servers_rounds_are_one_row() {
        let table = Table::new("others", "x", "y", &[("cpu_pct", "CPU %", 1)]);
        let round = |cpu: f64| {
            Row::new("others", "moim").cell("cpu_pct", Cell::number(cpu)).note("at least")
        };
        let row = one(&table, &plan(3), "moim", &[round(5.0), round(7.0), round(6.0)]);
        assert_eq!((row.name.as_str(), row.value("cpu_pct")), ("10 people, moim", Some(6.0)));
        assert_eq!(row.notes, ["CPU %: 5.0–7.0 in 3 runs", "at least"]);
        let row = one(&table, &plan(1), "moim", &[round(5.0)]);
        assert_eq!(
            (row.value("cpu_pct"), &row.notes[..]),
            (Some(5.0), &["at least".to_owned()][..])
        );
    }

    #[test]
    fn the_sentence_has_those_who_were_measured() {
        let row = |server: &str, us: Option<f64>| {
            Row::new("others", format!("10 people, {server}")).measured("us", us)
        };
        let say = |rows: &[Row]| in_words(rows, "10 people", ("us", "µs a packet", 1));
        let all = [row("moim", Some(5.25)), row("Janus 1.1.2", Some(24.0)), row("LiveKit", None)];
        assert_eq!(
            say(&all).as_deref(),
            Some("10 people: moim 5.2 µs a packet, Janus 1.1.2 24.0 µs a packet.")
        );
        assert_eq!(say(&all[..1]), None);
        assert_eq!(say(&all[1..]), None, "not without moim's own");
    }
}
