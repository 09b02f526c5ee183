use super::search::Outcome;
use super::*;
use std::fs;

fn trial(value: u32, outcome: Outcome) -> Trial {
    Trial {
        value,
        outcome,
        record: format!("run-{value}"),
        failures: Vec::new(),
        bottleneck: (outcome == Outcome::Breaks).then(|| "cpu_quota".to_owned()),
        evidence: Vec::new(),
        people: value as usize,
        delivered_per_s: Some(f64::from(value) * 50.0),
        server_cores: Some(0.01 + 0.0005 * f64::from(value)),
        server_mib: Some(20.0 + 0.1 * f64::from(value)),
        received_kbps: Some(420.0),
        generator_mib: (value == 10).then_some(3.0),
        generator_cores: 0.001 * f64::from(value),
        generator_cpus: Some(1),
    }
}

/// A search whose trials say what a server of this capacity says.
fn searched(capacity: u32) -> Search {
    let mut search = Search {
        scenario: "name: x\nserve: {}\nduration: 5s\nrooms: [{ people: { bot: 2 } }]\n".into(),
        vary: Vary::People,
        bounds: Bounds { from: 10, least: 1, most: 5000, within: 0.05, trials: 40, before: None },
        trials: Vec::new(),
        spent_s: 61.0,
        started_at: "2026-01-01T00:00:00Z".into(),
        proof: None,
    };
    while let Some(value) = next(&search.bounds, &search.outcomes()) {
        let outcome = if value <= capacity { Outcome::Holds } else { Outcome::Breaks };
        search.trials.push(trial(value, outcome));
    }
    search
}

#[test]
fn the_first_trial_says_what_one_costs_and_what_the_generator_carries() {
    let first = trial(10, Outcome::Holds);
    assert_eq!(
        first.plan("rooms", true, 5000).as_deref(),
        Some(
            "with 10 rooms each costs 1.00 mCPU and 307 KiB of the generator and 1.50 mCPU of the server; a person receives \
             420 kbit/s: its 1 CPU(s) carry about 850 here; 5000 would take about 6 such machines"
        )
    );
    let plan = searched(700).plan().expect("measured");
    assert!(plan.starts_with("with 10 people in the room each costs 1.00 mCPU"), "{plan}");
    assert!(!plan.contains("carry"), "{plan}");
    assert_eq!(Trial { generator_cpus: None, ..first }.plan("rooms", true, 100), None);
}

#[test]
fn a_search_that_was_stopped_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let whole = searched(700);
    let mut stopped = whole.clone();
    stopped.trials.truncate(6);
    stopped.write(dir.path()).unwrap();
    let options = CapacityOptions {
        scenario: None,
        vary: Vary::Rooms,
        from: 1,
        to: None,
        within_pct: 5.0,
        trials: 40,
        until: None,
        runs_dir: dir.path().to_owned(),
        resume: Some(dir.path().to_owned()),
        repeat: None,
        server_exe: None,
    };
    let (search, at) = begin(&options).unwrap();
    assert_eq!((search.vary, at.as_path()), (Vary::People, dir.path()));
    assert_eq!(next(&search.bounds, &search.outcomes()), Some(whole.trials[6].value));
    let nowhere = CapacityOptions { resume: Some("/nowhere".into()), ..options.clone() };
    assert!(begin(&nowhere).unwrap_err().contains("/nowhere/search.json"));
    let none = CapacityOptions { resume: None, ..options };
    assert!(begin(&none).unwrap_err().contains("--resume"));
    let none_yet = CapacityOptions { repeat: Some(dir.path().to_owned()), ..none.clone() };
    stopped.trials.truncate(2);
    stopped.write(dir.path()).unwrap();
    assert!(begin(&none_yet).unwrap_err().contains("found no limit"));
    whole.write(dir.path()).unwrap();
    let runs_dir = dir.path().join("runs");
    let repeat = CapacityOptions { repeat: none_yet.repeat, runs_dir: runs_dir.clone(), ..none };
    let (search, at) = begin(&repeat).unwrap();
    assert!(at.starts_with(&runs_dir) && search.trials.is_empty());
    let found = whole.found();
    assert_eq!(search.bounds.before, Some((found.low, found.high.unwrap())));
    assert_eq!((search.vary, search.bounds.from), (Vary::People, whole.bounds.from));
}

#[test]
fn the_page_says_the_answer_what_broke_and_what_one_more_costs() {
    let dir = tempfile::tempdir().unwrap();
    let mut search = searched(700);
    let found = search.found();
    assert!(found.low <= 700 && found.high.is_some_and(|high| high > 700));
    let what = "a quota of 0.5 cores instead of 0.4".to_owned();
    let value = found.high.unwrap();
    search.proof = Some(Proof { value, what, outcome: Outcome::Holds });
    page::write(&search, dir.path(), exit::PASS).unwrap();
    let summary = fs::read_to_string(dir.path().join("summary.json")).unwrap();
    assert!(summary.contains("what breaks first is cpu_quota, proven"), "{summary}");
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    let rows = summary["study"].as_array().unwrap();
    let answer = rows.iter().find(|row| row["table"] == "answer").unwrap();
    assert_eq!(answer["cells"]["broke"]["word"], "cpu_quota, proven");
    let cost = rows.iter().find(|row| row["table"] == "costs").unwrap();
    let mcpu = cost["cells"]["server_mcpu"]["value"].as_f64().unwrap();
    assert!((mcpu - 0.5).abs() < 1e-9, "{mcpu}");
    assert_eq!(rows.iter().filter(|row| row["table"] == "trials").count(), search.trials.len());
    assert!(dir.path().join("report.html").exists());
}

#[test]
fn a_scenario_without_thresholds_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.yaml");
    fs::write(&path, "name: x\nserve: {}\nduration: 5s\nrooms: [{ people: { bot: 2 } }]\n")
        .unwrap();
    let options = CapacityOptions {
        scenario: Some(path.clone()),
        vary: Vary::People,
        from: 10,
        to: None,
        within_pct: 5.0,
        trials: 40,
        until: None,
        runs_dir: dir.path().join("runs"),
        resume: None,
        repeat: None,
        server_exe: None,
    };
    assert!(begin(&options).unwrap_err().contains("thresholds: default"));
    fs::write(
        &path,
        "name: x\nserve: {}\nduration: 5s\nrooms: [{ people: { bot: 2 } }]\nthresholds: default\n",
    )
    .unwrap();
    let (search, at) = begin(&options).unwrap();
    assert_eq!((search.bounds.from, search.bounds.most), (10, 10_000));
    assert!(at.starts_with(dir.path().join("runs")));
    for (bad, part) in [
        (CapacityOptions { vary: Vary::Rate, ..options.clone() }, "no sockets"),
        (CapacityOptions { to: Some(0), ..options.clone() }, "--from 10"),
        (CapacityOptions { from: 0, ..options.clone() }, "from 2 to 10000"),
        (CapacityOptions { within_pct: f64::NAN, ..options.clone() }, "--within"),
        (CapacityOptions { trials: 0, ..options.clone() }, "--trials"),
    ] {
        let error = begin(&bad).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    let text = fs::read_to_string(&path).unwrap() + "matrix: { transport: [udp] }\n";
    fs::write(&path, text).unwrap();
    assert!(begin(&options).unwrap_err().contains("leave it out"));
}

#[test]
fn a_search_whose_generator_was_the_limit_says_at_least() {
    let mut search = searched(5000);
    search.trials.clear();
    while let Some(value) = next(&search.bounds, &search.outcomes()) {
        let outcome = if value < 640 { Outcome::Holds } else { Outcome::Generator };
        search.trials.push(trial(value, outcome));
    }
    let found = search.found();
    assert!(found.complete && found.high.is_none() && (500..640).contains(&found.low), "{found:?}");
    assert!(search.limited().is_some());
}
