//! The same at moim and at the servers that stand beside it: each in turn, on the same CPUs.

use super::beside::Beside;
use super::columns::US_PER_PACKET_CAME;
use super::repeated::{median, spread};
use super::session::{Session, Sessions};
use crate::record::{About, Cell, Row, Table};
use std::collections::BTreeSet;

/// A server that is measured.
pub(super) struct Server {
    /// As rows and plots call it.
    pub name: String,
    /// A word for the names of its sessions.
    pub word: String,
    /// What it is; none: moim's own.
    pub beside: Option<Beside>,
}

/// moim's server and those beside it.
pub(super) struct Others {
    /// Those that are there, moim's first.
    pub servers: Vec<Server>,
    /// Those that could not be started, and why.
    pub failed: Vec<(&'static str, String)>,
}

/// Rooms of several sizes, each made several times.
pub(super) struct Rooms<'a> {
    /// How many people.
    pub sizes: &'a [u32],
    /// How often each size is made at each server.
    pub rounds: u32,
    /// All of the scenario but name and target, for so many people.
    pub text: &'a dyn Fn(u32) -> String,
    /// Makes a row of a session.
    pub figures: &'a dyn Fn(Row, &Session) -> Row,
}

impl Others {
    /// Starts each server once, to see that it can be.
    pub async fn meet(sessions: &mut Sessions) -> Self {
        let ours = Server { name: "moim".into(), word: "moim".into(), beside: None };
        let mut this = Self { servers: vec![ours], failed: Vec::new() };
        for beside in sessions.asked.beside.clone() {
            let word = beside.word();
            match sessions.meet(&beside).await {
                Ok(name) => {
                    this.servers.push(Server { name, word: word.into(), beside: Some(beside) });
                }
                Err(reason) => this.failed.push((word, reason)),
            }
        }
        this
    }

    /// Makes the rooms at each server in turn; a row a size and server. Nothing where moim is alone.
    pub async fn run(
        &self,
        sessions: &mut Sessions,
        about: &mut About,
        table: Table,
        rooms: &Rooms<'_>,
    ) -> Vec<Row> {
        if self.servers.len() == 1 && self.failed.is_empty() {
            return Vec::new();
        }
        let mut rows = Vec::new();
        for people in rooms.sizes {
            let made = self.room(sessions, &table, rooms, *people).await;
            about.shown.extend(in_words(&made));
            rows.extend(made);
        }
        about.tables.push(table);
        rows
    }

    async fn room(
        &self,
        sessions: &mut Sessions,
        table: &Table,
        rooms: &Rooms<'_>,
        people: u32,
    ) -> Vec<Row> {
        let text = (rooms.text)(people);
        let mut made: Vec<Vec<Result<Row, String>>> = vec![Vec::new(); self.servers.len()];
        for round in 1..=rooms.rounds {
            for (server, made) in self.servers.iter().zip(&mut made) {
                let name = format!("{people}-people-{}-{round}", server.word);
                let mut ran = sessions.run_at(server.beside.as_ref(), &name, &text).await;
                if !sessions.quick && ran.as_ref().is_ok_and(Session::generator_was_limit) {
                    errln!("  and again: the generator was its limit");
                    ran = sessions.run_at(server.beside.as_ref(), &name, &text).await;
                }
                made.push(ran.map(|session| row(table, rooms, &session)));
            }
        }
        let name = |server: &str| format!("{people} people, {server}");
        let rows = self.servers.iter().zip(made);
        let rows = rows.map(|(server, rounds)| of_rounds(table, &name(&server.name), &rounds));
        let failed = self.failed.iter();
        let failed = failed.map(|(word, why)| Row::new(&table.id, name(word)).rest(table, why));
        rows.chain(failed).collect()
    }
}

/// A session's row.
fn row(table: &Table, rooms: &Rooms<'_>, session: &Session) -> Row {
    let us = Cell::or(session.us_per_packet_came(), "the server's CPU could not be read");
    let row = Row::new(&table.id, "").cell(US_PER_PACKET_CAME.0, us);
    let row = (rooms.figures)(row, session).rest(table, "a session has no such figure");
    match (session.summary.people, session.meta.people.len()) {
        (came, all) if came < all => row.note(format!("{came} of {all} people came in")),
        _ => row,
    }
}

/// The row of a server's rounds.
fn of_rounds(table: &Table, name: &str, rounds: &[Result<Row, String>]) -> Row {
    let told: Vec<Row> = rounds.iter().flatten().cloned().collect();
    let reasons: BTreeSet<&String> = rounds.iter().filter_map(|one| one.as_ref().err()).collect();
    let mut row = match &told[..] {
        [] => {
            let reasons: Vec<&str> = reasons.iter().map(|reason| reason.as_str()).collect();
            return Row::new(&table.id, name).rest(table, &reasons.join("; "));
        }
        [only] => Row { name: name.to_owned(), ..only.clone() },
        _ => {
            let (key, title, _) = US_PER_PACKET_CAME;
            let ends = spread(table, "", &told).cells.get(key).and_then(|cell| cell.word.clone());
            let row = median(table, name, &told);
            let runs = told.len();
            ends.iter().fold(row, |row, ends| row.note(format!("{title}: {ends} in {runs} runs")))
        }
    };
    let known: BTreeSet<String> = row.notes.iter().cloned().collect();
    let notes: BTreeSet<&String> = told.iter().flat_map(|row| &row.notes).collect();
    row.notes.extend(notes.into_iter().filter(|note| !known.contains(*note)).cloned());
    reasons.into_iter().fold(row, |row, why| row.note(format!("a run gave nothing: {why}")))
}

/// A sentence that sets what a packet costs side by side. Rows that prove less than that are left out: whose generator was
/// the limit, who were not healthy, or where people are missing. None without moim's own.
fn in_words(rows: &[Row]) -> Option<String> {
    let (key, _, digits) = US_PER_PACKET_CAME;
    let lacks = |note: &String| note.starts_with("lower bound") || note.ends_with("people came in");
    let told = |row: &Row| {
        let (people, server) = row.name.split_once(", ")?;
        let healthy =
            row.cells.get("verdict").is_none_or(|cell| cell.word.as_deref() == Some("healthy"));
        let whole = healthy && !row.notes.iter().any(lacks);
        let us = row.value(key).filter(|_| whole)?;
        Some((people.to_owned(), format!("{server} {us:.*} µs", usize::from(digits))))
    };
    let told: Vec<(String, String)> = rows.iter().filter_map(told).collect();
    let [(people, ours), _, ..] = &told[..] else { return None };
    if !ours.starts_with("moim ") {
        return None;
    }
    let all: Vec<&str> = told.iter().map(|(_, text)| text.as_str()).collect();
    Some(format!("The server's CPU for a packet that came, {people}: {}.", all.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table::new("others", "x", "y", &[("people", "people", 0), US_PER_PACKET_CAME])
    }

    fn round(us: f64) -> Row {
        let row = Row::new("others", "").cell("people", Cell::number(10.0));
        row.cell(US_PER_PACKET_CAME.0, Cell::number(us))
    }

    #[test]
    fn a_servers_rounds_are_one_row() {
        let rounds =
            [Ok(round(5.0).note("at least")), Ok(round(7.0).note("at least")), Ok(round(6.0))];
        let row = of_rounds(&table(), "10 people, moim", &rounds);
        assert_eq!(row.value(US_PER_PACKET_CAME.0), Some(6.0));
        assert_eq!(row.notes, ["server µs a packet that came: 5.00–7.00 in 3 runs", "at least"]);
        let row = of_rounds(&table(), "10 people, moim", &rounds[..1]);
        assert_eq!(
            (row.value(US_PER_PACKET_CAME.0), &*row.notes),
            (Some(5.0), &["at least".to_owned()][..])
        );
    }

    #[test]
    fn a_round_that_failed_is_told() {
        let failed = || Err("no server".to_owned());
        let row = of_rounds(&table(), "x", &[Ok(round(5.0)), failed(), Ok(round(5.0))]);
        assert_eq!(row.value(US_PER_PACKET_CAME.0), Some(5.0));
        assert_eq!(row.notes[1..], ["a run gave nothing: no server"]);
        assert!(row.notes[0].ends_with("in 2 runs"), "{:?}", row.notes);
        let row = of_rounds(&table(), "x", &[failed(), failed()]);
        assert!(row.cells.values().all(|cell| cell.reason.as_deref() == Some("no server")));
    }

    #[test]
    fn the_sentence_has_what_was_proven() {
        let named = |name: &str, us: f64| Row { name: format!("10 people, {name}"), ..round(us) };
        let all = [named("moim", 5.25), named("Janus 1.1.2", 24.0), named("LiveKit 1.13", 13.0)];
        let [ours, janus, livekit] = all.clone();
        let want = "The server's CPU for a packet that came, 10 people: moim 5.25 µs, Janus 1.1.2 24.00 µs";
        assert_eq!(in_words(&all), Some(format!("{want}, LiveKit 1.13 13.00 µs.")));
        let limited = livekit.note("lower bound only: timers fire late");
        assert_eq!(in_words(&[ours.clone(), janus.clone(), limited]), Some(format!("{want}.")));
        let few = janus.clone().note("9 of 10 people came in");
        assert_eq!(in_words(&[ours.clone(), few]), None);
        let ill = ours.cell("verdict", Cell::word("not healthy"));
        assert_eq!(in_words(&[ill, janus]), None, "not without moim's own");
    }
}
