//! docs/limits.md names each kind of message and of RTCP packet, with a reason that is counted or told and a test.

use engine::drops::{InDrop, OutDrop};
use std::collections::BTreeSet;
use std::path::Path;

/// What the table calls a packet of [`rtp::rtcp::Packet`].
const RTCP: [(&str, &str); 10] = [
    ("SenderReport", "SR"),
    ("ReceiverReport", "RR"),
    ("Sdes", "SDES"),
    ("Bye", "BYE"),
    ("Nack", "NACK"),
    ("Pli", "PLI"),
    ("Fir", "FIR"),
    ("TransportFeedback", "TWCC"),
    ("Remb", "REMB"),
    ("Other", "OTHER"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The cells of all rows of the document's tables.
fn rows() -> Vec<Vec<String>> {
    let text = read("docs/limits.md");
    let lines = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what"));
    let cell = |text: &str| text.trim().to_owned();
    lines.map(|line| line.trim_matches('|').split('|').map(cell).collect()).collect()
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// All Rust files of the workspace, one text.
fn sources() -> String {
    let mut pending = vec![root().join("crates"), root().join("tests")];
    let mut all = String::new();
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                all.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    all
}

#[test]
fn each_call_and_each_rtcp_packet_has_a_row() {
    let what: Vec<String> = rows().into_iter().map(|row| row[0].clone()).collect();
    let calls: BTreeSet<&str> = what.iter().flat_map(|cell| quoted(cell)).collect();
    for (call, _) in wire::room::COSTS {
        assert!(calls.contains(call), "docs/limits.md has no row for {call}");
    }
    let source = read("crates/rtp/src/rtcp.rs");
    let (_, body) = source.split_once("pub enum Packet<'a> {").expect("the packets");
    let (body, _) = body.split_once("\n}").expect("their end");
    let variants = body.lines().filter_map(|line| {
        let name = line.strip_prefix("    ")?.split(['(', ' ', ',', '{']).next()?;
        name.starts_with(|first: char| first.is_ascii_uppercase()).then_some(name)
    });
    let variants: Vec<&str> = variants.collect();
    assert!(variants.len() >= RTCP.len(), "{variants:?}");
    for variant in variants {
        let known = RTCP.iter().find(|(name, _)| *name == variant);
        let (_, word) = known.unwrap_or_else(|| panic!("name {variant} here, and give it a row"));
        let words =
            |cell: &String| cell.split(|c: char| !c.is_alphanumeric()).any(|it| it == *word);
        assert!(what.iter().any(words), "docs/limits.md has no row for {word}");
    }
}

#[test]
fn each_row_names_reasons_and_tests_that_exist() {
    let sources = sources();
    let reasons = InDrop::ALL.iter().map(|it| it.as_str());
    let reasons: BTreeSet<_> = reasons.chain(OutDrop::ALL.iter().map(|it| it.as_str())).collect();
    for row in rows() {
        assert_eq!(row.len(), 5, "{row:?}");
        for reason in quoted(&row[3]) {
            let known = reasons.contains(reason) || sources.contains(&format!("\"{reason}\""));
            assert!(known, "{reason} is no reason that the server knows: {row:?}");
        }
        let tests: Vec<&str> = quoted(&row[4]).collect();
        assert!(!tests.is_empty(), "no test: {row:?}");
        for test in tests {
            assert!(sources.contains(&format!("fn {test}(")), "there is no test {test}");
        }
    }
}
