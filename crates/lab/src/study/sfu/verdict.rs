//! The study's words for a session, by loss, jitter, delay and the server's CPU.

use crate::judge::quality::Quality;
use crate::record::{Cell, Row, Table};
use crate::study::columns::{LOSS, SERVER_CPU};
use crate::study::session::Session;

/// Up to here a session is stable, and over there dangerous: jitter and the way of sound, in ms. Of jitter the study
/// called 158 ms stable, 378 ms caution and 2144 ms danger.
const LATE_MS: (f64, f64) = (250.0, 1000.0);
/// The same of loss, in percent.
const LOSS_PCT: (f64, f64) = (1.0, 5.0);
/// Of the time in which a picture that should flow is paused, in percent.
const PAUSED_PCT: (f64, f64) = (5.0, 50.0);
/// Of the server's CPUs, in percent.
const CPU_PCT: (f64, f64) = (50.0, 90.0);

/// The verdicts' table.
pub(super) fn table() -> Table {
    Table::new(
        "verdicts",
        "Verdict per resolution",
        "The study judged by jitter: 158 ms was stable, 378 ms caution, 2144 ms danger. Here the worst of five figures \
         decides, each of 95 % of people: stable up to 250 ms of jitter, 250 ms that sound is under way, 1 % loss, \
         pictures paused for 5 % of the time and the server at 50 % of its CPUs; danger over 1000 ms, 1000 ms, 5 %, 50 % \
         and 90 %, or where somebody did not receive a track at all for a window; caution between.",
        &[
            ("verdict", "here", 0),
            ("theirs", "the study", 0),
            ("jitter_ms", "jitter ms", 1),
            ("delay_ms", "sound under way ms", 1),
            LOSS,
            ("paused_pct", "pictures paused %", 1),
            SERVER_CPU,
        ],
    )
}

/// The word for each figure, the worst of them; none where nothing tells.
fn judge(figures: [(Option<f64>, (f64, f64)); 5]) -> Option<Quality> {
    let word = |(value, (stable, danger)): (Option<f64>, (f64, f64))| {
        let value = value?;
        Some(match value {
            _ if value > danger => Quality::Danger,
            _ if value > stable => Quality::Caution,
            _ => Quality::Stable,
        })
    };
    let words = figures.into_iter().filter_map(word);
    words.max_by_key(|word| Quality::ALL.iter().position(|one| one == word))
}

/// A verdict by a session's figures; `theirs` is the study's word, or why it has none.
pub(super) fn row(
    name: String,
    figures: &Row,
    session: &Session,
    theirs: Result<&str, &str>,
) -> Row {
    let of = |key: &str| figures.value(key);
    let found = judge([
        (of("jitter_ms"), LATE_MS),
        (of("delay_ms"), LATE_MS),
        (of("loss_pct"), LOSS_PCT),
        (of("paused_pct"), PAUSED_PCT),
        (of("server_cpu_pct"), CPU_PCT),
    ]);
    let checks = &session.summary.checks;
    let dead = checks.iter().any(|check| check.name == "all subscriptions alive" && !check.ok);
    let found = if dead { Some(Quality::Danger) } else { found };
    let verdict = match found {
        _ if session.generator_was_limit() => {
            Cell::none("the generator was its limit: it proves nothing")
        }
        None => Cell::none("nothing that tells was measured"),
        Some(word) => Cell::word(word.as_str()),
    };
    let row = Row::new("verdicts", name).cell("verdict", verdict).cell("theirs", word(theirs));
    let row = ["jitter_ms", "delay_ms", "loss_pct", "paused_pct", "server_cpu_pct"]
        .into_iter()
        .fold(row, |row, key| row.measured(key, of(key)));
    match dead {
        true => row.note("somebody did not receive a track at all for a window"),
        false => row,
    }
}

/// The study's word, or why it has none.
pub(super) fn word(theirs: Result<&str, &str>) -> Cell {
    theirs.map_or_else(Cell::none, Cell::word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(jitter: f64, delay: f64, loss: f64, paused: f64, cpu: f64) -> Option<Quality> {
        let some = |value, bounds| (Some(value), bounds);
        judge([
            some(jitter, LATE_MS),
            some(delay, LATE_MS),
            some(loss, LOSS_PCT),
            some(paused, PAUSED_PCT),
            some(cpu, CPU_PCT),
        ])
    }

    #[test]
    fn the_studys_own_jitter_gets_the_studys_own_words() {
        let jitter = |ms| of(ms, 1.0, 0.0, 0.0, 9.6);
        let words = [158.0, 378.0, 2144.0, 2978.0].map(jitter);
        let [stable, caution, danger] = Quality::ALL.map(Some);
        assert_eq!(words, [stable, caution, danger, danger]);
    }

    #[test]
    fn the_worst_figure_decides() {
        let [stable, caution, danger] = Quality::ALL.map(Some);
        assert_eq!(of(1.0, 40.0, 0.0, 0.0, 50.0), stable);
        assert_eq!(of(1.0, 1700.0, 0.0, 0.0, 9.0), danger, "late without jitter or loss");
        assert_eq!(of(1.0, 40.0, 3.6, 0.0, 9.0), caution);
        assert_eq!(of(1.0, 40.0, 0.0, 99.0, 9.0), danger, "no pictures");
        assert_eq!(of(1.0, 40.0, 0.0, 0.0, 95.0), danger);
        let nothing = [LATE_MS, LATE_MS, LOSS_PCT, PAUSED_PCT, CPU_PCT].map(|one| (None, one));
        assert_eq!(judge(nothing), None);
    }
}
