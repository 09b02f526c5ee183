use super::*;
use crate::judge::summary::{self, Input};
use crate::record::{MachineRecord, PersonKind, SampleRecord, ServerUsage};
use crate::testing::{audio_row, meta};
use std::fs;
use std::path::Path;
use wire::QualitySample;

const LOAD: &str = "name: x\nserve: {}\nduration: 60s\nrooms: [{ people: { bot: 4 } }]\n";

/// Writes a run of four people: CPU a packet (a thousandth of the cores, at 1000 packets a second), and their jitter.
fn record(dir: &Path, name: &str, us: f64, jitter_ms: f64, floor_ms: Option<f64>) {
    let mut meta = meta();
    meta.scenario = LOAD.into();
    let mut samples = Vec::new();
    for t_ms in [3_000, 6_000, 9_000] {
        for person in 0..4 {
            let mut row = audio_row("p", "t", 150);
            row.jitter_ms = Some(jitter_ms + f64::from(person));
            let sample = QualitySample { received: vec![row], ..Default::default() };
            let person = format!("bot-{person}");
            samples.push(SampleRecord { t_ms, person, kind: PersonKind::Bot, sample });
        }
    }
    let window = |t_ms| {
        let server = ServerUsage {
            cpu_cores: Some(us / 1000.0),
            packets_in_per_s: Some(400.0),
            packets_out_per_s: Some(600.0),
            rss_mib: Some(50.0),
            floor_ms,
            ..ServerUsage::default()
        };
        MachineRecord { t_ms, server: Some(server), ..MachineRecord::default() }
    };
    let machine = [3_000, 6_000, 9_000].map(window);
    let summary = summary::summarize(&Input {
        samples: &samples,
        machine: &machine,
        duration_s: 9.0,
        ..Input::of(&meta)
    });
    let writer = Writer::create(&dir.join(name), "x", SystemTime::UNIX_EPOCH, LOAD).unwrap();
    samples.iter().for_each(|sample| writer.sample(sample));
    machine.iter().for_each(|window| writer.machine(window));
    writer.meta(&meta).unwrap();
    writer.summary(&summary).unwrap();
    // Records of a side lie beside each other.
    let side = dir.join(name.split('-').next().unwrap());
    fs::create_dir_all(&side).unwrap();
    fs::rename(writer.dir(), side.join(name)).unwrap();
    fs::remove_dir(dir.join(name)).unwrap();
}

fn compared(dir: &Path, sides: &[&str]) -> (u8, serde_json::Value) {
    let records = sides.iter().map(|side| dir.join(side)).collect();
    let runs_dir = dir.join("out");
    let _ = fs::remove_dir_all(&runs_dir);
    let code = compare(&CompareOptions { records, margin_pct: 5.0, runs_dir: runs_dir.clone() });
    let out = fs::read_dir(&runs_dir).map(|mut all| all.next().unwrap().unwrap().path());
    let summary = out.ok().map(|out| {
        assert!(out.join("report.html").exists());
        serde_json::from_slice(&fs::read(out.join("summary.json")).unwrap()).unwrap()
    });
    (code, summary.unwrap_or_default())
}

#[test]
fn a_dearer_server_is_found_beside_a_machine_that_drifts() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    for (number, drift) in [1.0, 1.3, 1.1].into_iter().enumerate() {
        record(at, &format!("old-{number}"), 5.0 * drift, 20.0, Some(drift));
        record(at, &format!("again-{number}"), 5.0 * (2.5 - drift), 20.0, Some(2.5 - drift));
        record(at, &format!("new-{number}"), 5.5 * drift, 20.0, Some(drift));
        record(at, &format!("late-{number}"), 5.0 * drift, 60.0, Some(drift));
        record(at, &format!("bare-{number}"), 5.5 * drift, 20.0, None);
    }
    let ours =
        |summary: &serde_json::Value| summary["study_about"]["ours"].as_str().unwrap().to_owned();
    let (code, summary) = compared(at, &["old", "new"]);
    assert_eq!((code, summary["exit_code"].as_u64()), (exit::WORSE, Some(112)));
    assert!(ours(&summary).contains("server CPU, µs a packet in or out +10.0 %"), "{summary}");
    let (code, summary) = compared(at, &["old", "again"]);
    assert_eq!(code, exit::PASS, "{}", ours(&summary));
    assert!(ours(&summary).starts_with("No difference of over 5 %"), "{}", ours(&summary));
    let (code, summary) = compared(at, &["old", "again", "late"]);
    assert_eq!(code, exit::WORSE);
    assert!(ours(&summary).contains("jitter_ms, half of the people"), "{}", ours(&summary));
    let (code, summary) = compared(at, &["old", "bare"]);
    assert_eq!(code, exit::PASS, "drift hides it where nobody measured the floor");
    assert!(ours(&summary).contains("not clear"), "{}", ours(&summary));
}

#[test]
fn single_runs_and_other_scenarios() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    record(at, "one-0", 5.0, 20.0, None);
    record(at, "two-0", 9.0, 20.0, None);
    let (code, summary) = compared(at, &["one/one-0", "two/two-0"]);
    assert_eq!(code, exit::PASS, "nothing is known");
    let text = summary["study_about"]["ours"].as_str().unwrap();
    assert!(text.contains("a side has a single run"), "{text}");
    assert_eq!(compared(at, &["one"]).0, exit::BAD_CONFIGURATION);
    let path = at.join("two/two-0/meta.json");
    let other = fs::read_to_string(&path).unwrap().replace("bot: 4", "bot: 5");
    fs::write(&path, other).unwrap();
    assert_eq!(compared(at, &["one", "two"]).0, exit::BAD_CONFIGURATION);
}
