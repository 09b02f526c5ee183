//! The loop of the study's virtual user: make a user, start a browser, log in, enter, check that sound arrives, stay,
//! leave, close the browser, again. Bots make the same loop without a browser.

use super::super::session::Sessions;
use super::room::no_browser;
use crate::judge::summary::ChurnSummary;
use crate::record::{Cell, Row, Table};

/// The table of the loops.
pub(super) fn table() -> Table {
    Table::new(
        "churn",
        "Coming and going",
        "The study's loop: make the user (first loop only), start a browser, log in with a token, enter, check that \
         sound arrives within 10 s, stay, leave, close the browser, again. Bots do the same without browser and token. \
         First audio counts from opening the page.",
        &[
            ("people", "people", 0),
            ("loops", "whole loops", 0),
            ("failures", "failed", 0),
            ("first_audio_p50_ms", "first audio ms, median", 0),
            ("first_audio_max_ms", "first audio ms, worst", 0),
        ],
    )
}

/// Its rows: bots, and the browsers among them.
pub(super) async fn rows(sessions: &mut Sessions, table: &Table) -> Vec<Row> {
    let (bots, stay_s, seconds) = if sessions.quick { (4, 2, 12) } else { (20, 10, 90) };
    let no_browsers = no_browser(sessions);
    let browsers = if no_browsers.is_none() { 2 } else { 0 };
    let row = |who: &str, people: u32| {
        Row::new("churn", format!("{who} who stay about {stay_s} s"))
            .cell("people", Cell::number(people.into()))
    };
    let (of_bots, of_browsers) =
        (row(&format!("{bots} bots"), bots), row("2 browsers among them", browsers));
    let serve = match browsers {
        0 => sessions.serve(1),
        _ => "serve: { cpus: shared }\n".to_owned(),
    };
    let text = format!(
        "{serve}duration: {seconds}s\nrooms:\n  - {{ preset: audio_room, churn: {{ stay: {stay_s}s }}, \
         people: {{ bot: {bots}, chromium: {browsers} }} }}\nmedia: {{ audio: speech, video: none }}\n",
    );
    let session = match sessions.run("churn", &text).await {
        Ok(session) => session,
        Err(reason) => return vec![of_bots.rest(table, &reason), of_browsers.rest(table, &reason)],
    };
    let no_browsers = no_browsers.unwrap_or_else(|| "none came and went".into());
    vec![
        filled(of_bots, session.summary.churn.as_ref(), table, "nobody came and went"),
        filled(of_browsers, session.summary.browsers_churn.as_ref(), table, &no_browsers),
    ]
}

fn filled(row: Row, churn: Option<&ChurnSummary>, table: &Table, reason: &str) -> Row {
    let Some(churn) = churn else { return row.rest(table, reason) };
    let failures: u64 = churn.failures.values().sum();
    let row = row
        .cell("loops", Cell::number(churn.loops as f64))
        .cell("failures", Cell::number(failures as f64))
        .measured("first_audio_p50_ms", churn.join_to_first_audio_ms_p50)
        .measured("first_audio_max_ms", churn.join_to_first_audio_ms_max);
    churn
        .failures
        .iter()
        .fold(row, |row, (reason, count)| row.note(format!("{count} failed: {reason}")))
}
