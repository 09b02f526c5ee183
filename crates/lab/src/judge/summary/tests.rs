use super::*;
use crate::judge::expected::Failure;
use crate::judge::threshold::{Condition, Threshold};
use crate::record::{GeneratorUsage, Join, PersonKind, ServerUsage, ThreadUsage};
use crate::testing::{audio_row, meta, sample, video_row};

/// The n-th window of 3 s.
fn window(nth: u64, thread_cores: f64, packets: f64, lag_ms: f64) -> MachineRecord {
    MachineRecord {
        t_ms: 3_000 * nth,
        server: Some(ServerUsage {
            cpu_cores: Some(0.5),
            threads: BTreeMap::from([("media-0".into(), 0.4)]),
            rss_mib: Some(20.0),
            packets_out_per_s: Some(packets),
            drops: BTreeMap::from([("slow".into(), 2)]),
            ..Default::default()
        }),
        generator: GeneratorUsage {
            cpu_cores: 1.0,
            threads: BTreeMap::from([("bots".into(), thread_cores)]),
            fullest_thread: Some(ThreadUsage {
                name: "bots".into(),
                cores: thread_cores,
                waited: 0.0,
            }),
            timer_lag_ms_p99: lag_ms,
            ..GeneratorUsage::default()
        },
        ..MachineRecord::default()
    }
}

struct Case {
    first_window_cores: f64,
    thread_cores: f64,
    lag_ms: f64,
    faults: Vec<String>,
    dead: bool,
    limit: &'static str,
    interrupted: bool,
    aborted: Option<String>,
    /// A browser counts freezes, the bot none.
    disagree: bool,
}

impl Default for Case {
    fn default() -> Self {
        let limit = "user_p95 < 10";
        Self {
            first_window_cores: 0.9,
            thread_cores: 0.2,
            lag_ms: 0.2,
            faults: vec![],
            dead: false,
            limit,
            interrupted: false,
            aborted: None,
            disagree: false,
        }
    }
}

/// A browser beside the bot, who sees 12 times two freezes of a track that both receive; the bot none.
fn disagreeing(meta: &mut Meta, samples: &mut Vec<SampleRecord>) {
    let mut browser = meta.people[0].clone();
    (browser.name, browser.kind) = ("chromium-1".into(), PersonKind::Chromium);
    meta.people.push(browser);
    for nth in 3..51 {
        for person in &meta.people {
            let mut row = video_row("p2", "v", 10);
            let froze = person.kind == PersonKind::Chromium && nth % 4 == 0;
            row.freezes = Some(if froze { 2 } else { 0 });
            let mut record = sample(3_000 * nth);
            (record.person, record.kind) = (person.name.clone(), person.kind);
            record.sample.received = vec![row];
            samples.push(record);
        }
    }
}

fn run(case: Case) -> Summary {
    let mut meta = meta();
    meta.people[0].participant = Some("p1".into());
    let mut samples = vec![sample(3_000), sample(6_000)];
    samples[1].sample.received = vec![audio_row("p2", "t", 10), audio_row("p3", "u", 0)];
    if case.disagree {
        disagreeing(&mut meta, &mut samples);
    }
    let first = window(1, case.first_window_cores, 1.0, case.lag_ms);
    let machine = [first, window(2, case.thread_cores, 100_000.0, case.lag_ms)];
    let condition = Condition::parse(case.limit).expect("condition");
    let thresholds =
        [Threshold { metric: "rtt_ms", condition, from: std::time::Duration::ZERO, abort: None }];
    let dead = Failure {
        listeners: vec![],
        publisher: None,
        kind: None,
        since_ms: 0,
        until_ms: None,
        text: "nobody receives video of bot-7 since 21 s".into(),
    };
    let dead: Vec<Failure> = case.dead.then_some(dead).into_iter().collect();
    summarize(&Input {
        samples: &samples,
        machine: &machine,
        timer_lag_ms_p99: case.lag_ms,
        joins: &[Join { person: "bot-1".into(), t_ms: 200, took_ms: 120.0 }],
        thresholds: &thresholds,
        faults: &case.faults,
        subscriptions: &dead,
        duration_s: 6.0,
        interrupted: case.interrupted,
        aborted: case.aborted,
        ..Input::of(&meta)
    })
}

#[test]
fn what_a_verdict_says_nothing_of_stands_below_it() {
    let summary = run(Case::default());
    let told = summary.not_judged.join("; ");
    assert!(told.contains("mouth to ear") && !told.contains("camera"), "{told}");
    assert!(!told.contains("thresholds") && !told.contains("CPU"), "{told}");
    assert!(table(&summary, &meta()).contains("not judged: the delay from mouth to ear"));
    let (meta, samples) = (meta(), [sample(3_000)]);
    let told = summarize(&Input { samples: &samples, ..Input::of(&meta) }).not_judged;
    assert_eq!(told[0], "no thresholds: only checks were judged");
    assert!(told.iter().any(|text| text.contains("the server's CPU")), "{told:?}");
    assert!(
        of_study(&meta, &[], Default::default()).not_judged.is_empty(),
        "a study judges nothing"
    );
    assert!(of_killed_run(&meta, &samples, &[]).not_judged.is_empty(), "nor does what was killed");
}

#[test]
fn a_good_run_passes_with_its_figures() {
    let summary = run(Case::default());
    assert_eq!((summary.verdict, summary.exit_code), (Verdict::Pass, 0), "{:?}", summary.failures);
    assert_eq!((summary.people, summary.subscriptions), (1, 1));
    let server = summary.server.as_ref().expect("local");
    let us = server.us_per_packet_out.expect("known");
    assert!((us - 5.0).abs() < 1e-9, "0.5 cores at 100 000 a second: {us}");
    assert_eq!(server.drops["slow"], 4, "drops count in the first window too");
    assert_eq!(summary.generator.threads["bots"], 0.2, "the first window is warm-up");
    let connected = summary.metrics["join_to_connected_ms"].as_ref().expect("known");
    assert_eq!(connected.max, 120.0);
    assert!(summary.checks.iter().all(|check| check.ok));
}

#[test]
fn thresholds_checks_and_faults_fail() {
    let summary = run(Case { limit: "user_p95 < 1", ..Case::default() });
    assert_eq!((summary.verdict, summary.exit_code), (Verdict::Fail, 99));
    assert_eq!(summary.failures, ["rtt_ms user_p95 < 1 does not hold: it was 1.50"]);

    let summary = run(Case { dead: true, ..Case::default() });
    assert_eq!(summary.exit_code, 99);
    assert_eq!(summary.failures, ["nobody receives video of bot-7 since 21 s"]);
    assert!(!summary.checks[1].ok);

    let faults = vec!["bot-3 could not join: room_full: …".to_owned()];
    let summary = run(Case { faults: faults.clone(), ..Case::default() });
    assert_eq!((summary.exit_code, summary.failures), (99, faults));
}

#[test]
fn a_generator_at_its_limit_is_never_a_pass() {
    let summary = run(Case { lag_ms: 5.1, ..Case::default() });
    assert_eq!((summary.verdict, summary.exit_code), (Verdict::Inconclusive, 110));
    assert_eq!(summary.bottleneck.first.as_deref(), Some("generator"));
    assert!(summary.generator.reasons[0].contains("5.10 ms late"));

    let busy = |cores| Case { first_window_cores: cores, thread_cores: cores, ..Case::default() };
    let summary = run(busy(0.95));
    assert_eq!(summary.exit_code, 110);
    // A failed threshold or check of a saturated generator proves nothing either …
    let failed = Case { dead: true, limit: "max < 1", ..busy(0.99) };
    assert_eq!(run(failed).exit_code, 110);
    assert_eq!(run(Case { lag_ms: 9.0, limit: "max < 1", ..Case::default() }).exit_code, 110);
    // … nor does one whose timers were a little late, whatever is gone.
    let late = run(Case { lag_ms: 9.0, dead: true, ..Case::default() });
    assert_eq!((late.verdict, late.exit_code), (Verdict::Inconclusive, 110));
    // The first window counts: people came in it.
    let early = run(Case { first_window_cores: 0.96, ..Case::default() });
    assert_eq!((early.generator.void.len(), early.generator.threads["bots"]), (1, 0.2));
}

/// A minute in which the generator's timers were late in some windows, and a subscription was dead in a stretch, if that is told.
fn minute(late: &[u64], dead: Option<(u64, u64)>, limit: &str) -> Summary {
    let mut meta = meta();
    meta.people[0].participant = Some("p1".into());
    let nth = 1..=20_u64;
    let machine: Vec<_> = nth
        .clone()
        .map(|nth| window(nth, 0.2, 1.0, if late.contains(&nth) { 5.02 } else { 0.2 }))
        .collect();
    let samples: Vec<_> = nth
        .map(|nth| {
            let mut sample = sample(3_000 * nth);
            sample.sample.rtt_ms = Some(if nth == 5 { 90.0 } else { 1.0 });
            sample
        })
        .collect();
    let condition = Condition::parse(limit).expect("condition");
    let from = std::time::Duration::ZERO;
    let thresholds = [Threshold { metric: "rtt_ms", condition, from, abort: None }];
    let dead = dead.map(|(since_ms, until_ms)| Failure {
        listeners: vec![],
        publisher: None,
        kind: None,
        since_ms,
        until_ms: Some(until_ms),
        text: "bot-1 receives no audio of bot-2".into(),
    });
    let dead: Vec<Failure> = dead.into_iter().collect();
    summarize(&Input {
        samples: &samples,
        machine: &machine,
        thresholds: &thresholds,
        subscriptions: &dead,
        duration_s: 60.0,
        ..Input::of(&meta)
    })
}

#[test]
fn windows_in_which_the_generator_was_its_limit_are_void_and_the_rest_is_judged() {
    let one = minute(&[5], None, "max < 100");
    assert_eq!((one.verdict, one.exit_code, one.generator.healthy), (Verdict::Pass, 0, true));
    let Void { from_ms, until_ms, why } = &one.generator.void[0];
    assert_eq!((*from_ms, *until_ms, why.as_str()), (12_000, 15_000, "timers fire 5.02 ms late"));
    assert!(table(&one, &meta()).contains("12 to 15 s: timers fire 5.02 ms late"));
    // More than one, and more than a tenth.
    assert_eq!(minute(&[5, 6], None, "max < 100").exit_code, 0);
    let many = minute(&[5, 6, 7], None, "max < 100");
    assert_eq!((many.verdict, many.exit_code), (Verdict::Inconclusive, 110));
    // The generator may have broken something there, and nothing elsewhere.
    let within = minute(&[5], Some((12_500, 14_000)), "max < 100");
    assert_eq!(
        (within.exit_code, within.generator.reasons.as_slice()),
        (110, &["timers fire 5.02 ms late".to_owned()][..])
    );
    assert_eq!(minute(&[5], Some((12_500, 16_000)), "max < 100").exit_code, 99);
    assert_eq!(minute(&[9], Some((12_500, 14_000)), "max < 100").exit_code, 99);
    assert_eq!(minute(&[5], None, "max < 50").exit_code, 110, "rtt was long in that window alone");
    assert_eq!(minute(&[9], None, "max < 50").exit_code, 99);
    assert_eq!(minute(&[5], None, "max < 0.5").exit_code, 99, "and here in the others too");
}

#[test]
fn an_interrupted_run_says_so() {
    let summary = run(Case { interrupted: true, ..Case::default() });
    assert_eq!((summary.verdict, summary.exit_code), (Verdict::Inconclusive, 105));
}

#[test]
fn the_table_names_what_matters() {
    let summary = run(Case { dead: true, ..Case::default() });
    let text = table(&summary, &meta());
    for part in [
        "people         1 of 1 joined (1 bots, 0 chromium)",
        "loss           not measured",
        "rtt            median 1.50",
        "  threads      media-0 40.0 %",
        "threshold      ok  rtt_ms user_p95 < 10  (1.50)",
        "check          FAILED  all subscriptions alive: 1 failures",
        "verdict: fail (exit 99)",
        "  - nobody receives video of bot-7 since 21 s",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

/// A summary for tests elsewhere.
pub(crate) fn a_summary() -> Summary {
    run(Case::default())
}

#[test]
fn what_came_through_in_the_second_half() {
    let delivery = run(Case::default()).delivery.expect("received");
    assert_eq!((delivery.packets_per_s, delivery.missing_share), (10.0 / 3.0, 0.0));
}

#[test]
fn a_run_that_a_threshold_ended_says_which_and_when() {
    let text = "ended at 12.0 s by abort_on_fail: rtt_ms max < 1 did not hold, it was 1.50";
    let summary = run(Case { aborted: Some(text.into()), ..Case::default() });
    assert_eq!((summary.verdict, summary.exit_code), (Verdict::Fail, 99));
    assert_eq!(summary.failures, [text]);
    assert!(summary.checks.iter().all(|check| check.ok), "nobody's fault");
    assert!(table(&summary, &meta()).contains(&format!("  - {text}")));
}

#[test]
fn the_words_for_how_good_it_was() {
    let (stable, caution, danger) =
        (Some(Quality::Stable), Some(Quality::Caution), Some(Quality::Danger));
    for (loss_pct, server_cpu_pct, word) in [
        (Some(0.0), Some(49.9), stable),
        (Some(1.0), Some(10.0), caution),
        (Some(0.0), Some(50.0), caution),
        (Some(5.0), Some(90.0), caution),
        (Some(5.1), Some(10.0), danger),
        (Some(0.0), Some(90.1), danger),
        (Some(5.1), None, danger),
        (None, Some(95.0), danger),
        (Some(0.0), None, None),
        (None, Some(10.0), None),
        (None, None, None),
    ] {
        assert_eq!(Quality::of(loss_pct, server_cpu_pct), word, "{loss_pct:?} {server_cpu_pct:?}");
    }
    let dead = run(Case { dead: true, ..Case::default() });
    assert_eq!(dead.quality, danger, "media that is gone is no loss of packets");
    assert_eq!(run(Case { lag_ms: 9.0, ..Case::default() }).quality, None, "it proves nothing");
    let unknown = run(Case::default());
    assert_eq!(unknown.quality, None, "nobody measured loss");
    assert!(table(&unknown, &meta()).contains("quality        unknown"));
    let json = serde_json::to_value(&dead).expect("JSON");
    assert_eq!((&json["quality"], json.get("aborted")), (&"danger".into(), None));
}

#[test]
fn browsers_and_bots_that_disagree_make_a_run_prove_nothing() {
    let case = || Case { disagree: true, ..Case::default() };
    let summary = run(case());
    assert_eq!((summary.verdict, summary.exit_code), (Verdict::Inconclusive, 113));
    let why = "browsers and bots counted the same freezes in 0 of 12 windows with one";
    assert_eq!(summary.failures, [why]);
    let check = summary.checks.last().expect("checks");
    assert_eq!((check.name.as_str(), check.ok), ("browsers and bots agree", false));
    // A threshold is of what they say; who receives nothing is not.
    assert_eq!(run(Case { limit: "user_p95 < 1", ..case() }).exit_code, 113);
    assert_eq!(run(Case { dead: true, ..case() }).exit_code, 99);
    let busy = Case { first_window_cores: 0.99, thread_cores: 0.99, ..case() };
    assert_eq!(run(busy).exit_code, 110);
}
