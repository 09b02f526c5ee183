use super::*;
use crate::record::{Cell, Plot, Row, Table};
use std::collections::BTreeMap;

fn about() -> About {
    let columns = [("loss_pct", "loss %", 2), ("rtt_ms", "RTT ms", 1)];
    About {
        title: "A study".into(),
        theirs: "It broke at ten.".into(),
        ours: "It broke at twelve.".into(),
        tables: vec![Table::new("t", "Its table", "A hint.", &columns)],
        ..About::default()
    }
}

fn row() -> Row {
    Row::new("t", "ten people")
        .cell("loss_pct", Cell::number(0.25))
        .cell("rtt_ms", Cell::none("nobody asked"))
        .reference([("loss_pct", 0.0)])
}

#[test]
fn a_cell_without_number_or_reason_is_a_gap() {
    let about = about();
    assert_eq!(about.gaps(&[row()]), Vec::<String>::new());
    let silent = About { ours: String::new(), ..about.clone() };
    assert_eq!(silent.gaps(&[row()]), ["no sentence that says what was found"]);
    assert_eq!(about.gaps(&[]), ["table t has no rows"]);
    let mut hollow = row();
    hollow.cells.insert("rtt_ms".into(), Cell::default());
    assert_eq!(about.gaps(&[hollow]), ["t, ten people: no rtt_ms"]);
    assert_eq!(about.gaps(&[row(), Row::new("u", "x")]), ["row x has no table"]);
    assert_eq!(Cell::number(f64::NAN).value, None);
    let worded = row().cell("rtt_ms", Cell::word("network"));
    assert_eq!(about.gaps(&[worded]), Vec::<String>::new(), "a word is no gap");
    let table = &about.tables[0];
    let filled = Row::new("t", "later").rest(table, "not yet");
    assert!(about.gaps(std::slice::from_ref(&filled)).is_empty());
    assert!(filled.cells.values().all(|cell| cell.reason.as_deref() == Some("not yet")));
}

#[test]
fn documents_hold_every_figure_the_studys_own_and_each_reason_once() {
    let meta = crate::testing::meta();
    let worded = Row { name: "a limit".into(), ..row().cell("rtt_ms", Cell::word("network")) };
    let rows = [row(), Row { name: "two people".into(), ..row() }, worded];
    let text = text::markdown(&about(), &rows, &meta);
    assert!(text.contains("| ten people | 0.25 | – (a) |"), "{text}");
    assert!(text.contains("| *the study* | *0* |"), "{text}");
    assert!(text.contains("| a limit | 0.25 | network |"), "{text}");
    assert!(text.contains("- **The study:** It broke at ten.\n- **Here:** It broke at twelve."));
    assert_eq!(text.matches("nobody asked").count(), 1, "{text}");
    let text = text::text(&about(), &rows);
    assert!(text.contains("0.25  (study: 0.00)") && text.contains("nobody asked"), "{text}");
}

#[test]
fn plots_are_in_order_and_gaps_stay_gaps() {
    let points = vec![(3.0, vec![Some(1.0), None]), (1.0, vec![None, Some(2.0)]), (3.0, vec![])];
    let plot = Plot::new(("t", "u", "x"), &["a", "b"], points);
    assert_eq!(plot.x, [1.0, 3.0]);
    let values: BTreeMap<&str, &[Option<f64>]> =
        plot.lines.iter().map(|line| (line.label.as_str(), &line.values[..])).collect();
    assert_eq!(values["a"], [None, Some(1.0)]);
    assert_eq!(values["b"], [Some(2.0), None]);
}

#[test]
fn names() {
    for name in Name::ALL {
        assert_eq!(Name::parse(name.as_str()), Ok(name));
    }
    assert!(Name::parse("sfv").expect_err("unknown").contains("mesh-vs-sfu"));
}

#[test]
fn an_option_is_for_the_study_that_has_it() {
    let options = |name, beside: &[&str]| StudyOptions {
        name,
        quick: true,
        like_the_study: false,
        profile: false,
        runs_dir: "runs".into(),
        beside: beside.iter().map(|text| Beside::parse(text).expect("a server")).collect(),
        server_exe: None,
    };
    let file = std::env::current_exe().expect("a file").display().to_string();
    let both = [format!("janus={file}"), format!("livekit={file}")];
    let both = both.each_ref().map(String::as_str);
    assert_eq!(options(Name::Sfu, &both).fault(), None);
    let command = format!("moim study sfu --quick --beside {} --beside {}", both[0], both[1]);
    assert_eq!(options(Name::Sfu, &both).command(), command);
    let other = options(Name::AudioRoom, &both).fault().expect("LiveKit does not mix");
    assert!(other.contains("moim study sfu"), "{other}");
    let twice = options(Name::Sfu, &[both[0], both[0]]).fault().expect("twice");
    assert!(twice.contains("give it once"), "{twice}");
    let long = StudyOptions { like_the_study: true, ..options(Name::Sockets, &[]) };
    assert!(long.fault().is_some_and(|why| why.contains("moim study audio-room")));
}
