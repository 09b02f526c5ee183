use super::*;
use crate::record::PersonKind;
use crate::testing::row;
use wire::QualitySample;

const PEOPLE: [&str; 4] = ["a", "b", "c", "d"];
const END_MS: u64 = 30_000;

fn everyone() -> Expected {
    let span = Span { from_ms: 0, until_ms: None };
    let track = |name: &str, kind: MediaKind| Track {
        room: "r".into(),
        publisher: name.into(),
        participant: format!("p-{name}"),
        track: format!("{name}-{}", kind.as_str()),
        kind,
        on_air: vec![span],
    };
    let tracks = PEOPLE
        .iter()
        .flat_map(|name| [track(name, MediaKind::Audio), track(name, MediaKind::Video)])
        .collect();
    let listeners = PEOPLE
        .iter()
        .map(|name| Listener {
            room: "r".into(),
            person: (*name).into(),
            participant: format!("p-{name}"),
            present: span,
            mix: false,
            max_audio: None,
            max_video: None,
        })
        .collect();
    Expected { tracks, listeners, end_ms: END_MS, ..Expected::default() }
}

/// Samples of everyone every 3 s; `alive(listener, publisher, kind, t_ms)` says what came.
fn samples(alive: impl Fn(&str, &str, MediaKind, u64) -> bool) -> Vec<SampleRecord> {
    let mut records = Vec::new();
    for t_ms in (3_000..=END_MS).step_by(3_000) {
        for listener in PEOPLE {
            let mut sample = QualitySample { interval_ms: 3_000, ..Default::default() };
            for publisher in PEOPLE.iter().filter(|p| **p != listener) {
                for kind in [MediaKind::Audio, MediaKind::Video] {
                    let track = format!("{publisher}-{}", kind.as_str());
                    let packets = if alive(listener, publisher, kind, t_ms) { 60 } else { 0 };
                    sample.received.push(row(&format!("p-{publisher}"), &track, kind, packets));
                }
            }
            let kind = PersonKind::Bot;
            records.push(SampleRecord { t_ms, person: listener.into(), kind, sample });
        }
    }
    records
}

fn texts(expected: &Expected, records: &[SampleRecord]) -> Vec<String> {
    subscriptions(expected, records).into_iter().map(|f| f.text).collect()
}

#[test]
fn all_alive_passes() {
    assert_eq!(texts(&everyone(), &samples(|_, _, _, _| true)), Vec::<String>::new());
}

#[test]
fn a_track_that_nobody_receives_is_one_failure() {
    let records = samples(|_, p, kind, t| !(p == "b" && kind == MediaKind::Video && t > 21_000));
    let failures = subscriptions(&everyone(), &records);
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0].text, "nobody receives video of b since 21 s");
    assert_eq!(failures[0].listeners, ["a", "c", "d"]);
    assert_eq!(failures[0].publisher.as_deref(), Some("b"));
    assert_eq!(failures[0].kind, Some(MediaKind::Video));
}

#[test]
fn one_who_lacks_one_track_is_named_with_time_of_return() {
    let records = samples(|l, p, kind, t| {
        !(l == "c" && p == "a" && kind == MediaKind::Audio && (9_001..=15_000).contains(&t))
    });
    assert_eq!(texts(&everyone(), &records), ["c receives no audio of a from 9 s to 15 s"]);
}

#[test]
fn one_who_lacks_everything_is_one_failure_a_kind() {
    let records = samples(|l, _, _, t| !(l == "d" && t > 12_000));
    let want =
        ["d receives no audio of anyone since 12 s", "d receives no video of anyone since 12 s"];
    assert_eq!(texts(&everyone(), &records), want);
}

#[test]
fn a_missing_row_is_as_dead_as_an_empty_one_and_a_row_knows_the_moment() {
    let mut records = samples(|_, p, _, t| !(p == "a" && t > 15_000));
    for record in records.iter_mut().filter(|r| r.t_ms > 15_000) {
        if record.person == "b" {
            record.sample.received.retain(|row| row.packets_received > 0);
        }
        for row in record.sample.received.iter_mut().filter(|r| r.packets_received == 0) {
            row.since_last_ms = Some((record.t_ms - 13_600) as f64);
        }
    }
    let want = ["nobody receives audio of a since 14 s", "nobody receives video of a since 14 s"];
    assert_eq!(texts(&everyone(), &records), want);
}

#[test]
fn packets_alone_are_no_picture_and_no_sound() {
    let mut records = samples(|_, _, _, _| true);
    let slow = |record: &&mut SampleRecord| record.person == "d" && record.t_ms > 9_000;
    for row in records.iter_mut().filter(slow).flat_map(|record| &mut record.sample.received) {
        match row.kind {
            MediaKind::Video => row.frames_per_second = Some(0.0),
            MediaKind::Audio => {
                row.loss_pct = Some(if row.participant == "p-a" { 60.0 } else { 40.0 })
            }
        }
    }
    let want = [
        "d receives no audio of a since 9 s: half of it or more was lost or concealed",
        "d receives no video of anyone since 9 s: packets came, but no picture could be shown",
    ];
    assert_eq!(texts(&everyone(), &records), want);
    for row in records.iter_mut().flat_map(|record| &mut record.sample.received) {
        row.loss_pct = None;
        row.frames_per_second = row.frames_per_second.map(|_| 0.3);
    }
    assert_eq!(
        texts(&everyone(), &records),
        Vec::<String>::new(),
        "one picture in a window is one"
    );
}

#[test]
fn muted_by_announcement_and_gone_are_not_expected() {
    let mut expected = everyone();
    expected.tracks[1].on_air = vec![Span { from_ms: 0, until_ms: Some(14_000) }];
    expected.listeners[3].present.until_ms = Some(9_500);
    for track in &mut expected.tracks[6..] {
        track.on_air[0].until_ms = Some(9_500);
    }
    let mut records = samples(|_, p, kind, t| {
        let muted = p == "a" && kind == MediaKind::Video && t > 14_000;
        let gone = p == "d" && t > 9_500;
        !muted && !gone
    });
    records.retain(|r| r.person != "d" || r.t_ms <= 9_500);
    assert_eq!(texts(&expected, &records), Vec::<String>::new());
    expected.tracks[1].on_air.push(Span { from_ms: 18_000, until_ms: None });
    assert_eq!(texts(&expected, &records), ["nobody receives video of a since 21 s"]);
}

#[test]
fn the_first_window_is_grace_and_the_next_counts() {
    let late = |dead_until: u64| samples(move |_, p, _, t| !(p == "a" && t <= dead_until));
    assert_eq!(texts(&everyone(), &late(3_000)), Vec::<String>::new());
    let failures = texts(&everyone(), &late(6_000));
    assert_eq!(failures.len(), 2, "{failures:?}");
    assert_eq!(failures[0], "nobody receives audio of a from 3 s to 6 s");
}

#[test]
fn a_canary_shows_as_many_as_it_wants_whichever_they_are() {
    let mut expected = everyone();
    expected.listeners[0].max_video = Some(2);
    let some = |count: usize| {
        samples(move |l, p, kind, t| {
            let position = PEOPLE.iter().position(|x| *x == p).unwrap_or(0);
            l != "a" || kind == MediaKind::Audio || t <= 12_000 || position <= count
        })
    };
    assert_eq!(texts(&expected, &some(2)), Vec::<String>::new());
    assert_eq!(texts(&expected, &some(1)), ["a receives 1 of 2 video tracks since 12 s"]);
}

#[test]
fn no_samples_is_a_failure_too() {
    let mut records = samples(|_, _, _, _| true);
    records.retain(|r| r.person != "b" || r.t_ms <= 15_000);
    assert_eq!(texts(&everyone(), &records), ["b gives no sample since 15 s"]);
    records.retain(|r| r.person != "b");
    assert_eq!(texts(&everyone(), &records), ["b gives no sample since 0 s"]);
}

/// A mixed room: everyone gets `packets(listener, t_ms)` of the mix in each window.
fn mixed(packets: impl Fn(&str, u64) -> u64) -> (Expected, Vec<SampleRecord>) {
    let mut expected = everyone();
    expected.listeners.iter_mut().for_each(|listener| listener.mix = true);
    let mut records = samples(|_, _, _, _| true);
    for record in &mut records {
        record.sample.received.retain(|row| row.kind == MediaKind::Video);
        let packets = packets(&record.person, record.t_ms);
        record.sample.received.push(row("", "mix", MediaKind::Audio, packets));
    }
    (expected, records)
}

#[test]
fn a_mix_must_flow_all_the_time_and_nobodys_own_audio_is_missed() {
    let (expected, records) = mixed(|_, _| 150);
    assert_eq!(texts(&expected, &records), Vec::<String>::new());
    let (expected, records) = mixed(|who, t_ms| if who == "c" && t_ms > 9_000 { 0 } else { 150 });
    assert_eq!(texts(&expected, &records), ["c does not receive the mix of r since 9 s"]);
    let (expected, records) = mixed(|_, t_ms| if t_ms > 21_000 { 0 } else { 148 });
    let failures = subscriptions(&expected, &records);
    assert_eq!(failures[0].text, "nobody receives the mix of r since 21 s");
    assert_eq!((failures.len(), failures[0].listeners.len()), (1, 4));
    assert_eq!(failures[0].publisher, None);
    // A third of the packets missing is a fault, three in a hundred are not.
    let (expected, records) = mixed(|who, t_ms| match (who, t_ms) {
        ("a", 12_000) => 100,
        ("b", _) => 146,
        _ => 150,
    });
    let want = ["a does not receive the mix of r from 9 s to 12 s"];
    assert_eq!(texts(&expected, &records), want);
    // Lost packets were sent: they are the loss's own figure.
    let (expected, mut records) = mixed(|_, _| 120);
    for row in records.iter_mut().flat_map(|record| &mut record.sample.received) {
        row.packets_lost = 30;
    }
    assert_eq!(texts(&expected, &records), Vec::<String>::new());
}

#[test]
fn a_wrong_mix_is_a_failure_that_says_how() {
    let (mut expected, records) = mixed(|_, _| 150);
    let right = MixWindows { windows: 9, ..MixWindows::default() };
    expected.mixes.insert("a".into(), right.clone());
    assert_eq!(texts(&expected, &records), Vec::<String>::new());
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let wrong = Wrong { at_ms: 14_750, missing: names(&["c"]), extra: names(&["b", "d"]) };
    let heard = MixWindows { wrong: 2, examples: vec![wrong], ..right };
    expected.mixes.insert("b".into(), heard);
    let want = "b hears a wrong mix in 2 of 9 windows, first without c and with b, d at 14.8 s \
                of the plan";
    assert_eq!(texts(&expected, &records), [want]);
}

#[test]
fn each_visit_is_judged_by_itself() {
    let mut expected = everyone();
    let again = Span { from_ms: 24_000, until_ms: None };
    expected.listeners[0].present.until_ms = Some(6_000);
    expected.listeners.push(Listener { present: again, ..expected.listeners[0].clone() });
    for track in &mut expected.tracks[..2] {
        track.on_air[0].until_ms = Some(6_000);
    }
    let mut records = samples(|_, p, _, t| !(p == "a" && t > 6_000));
    records.retain(|r| r.person != "a" || !(6_001..=26_000).contains(&r.t_ms));
    assert_eq!(texts(&expected, &records), Vec::<String>::new());
}

#[test]
fn rooms_do_not_mix() {
    let mut expected = everyone();
    for listener in &mut expected.listeners[2..] {
        listener.room = "other".into();
    }
    let records = samples(|l, _, _, _| l == "a" || l == "b");
    assert_eq!(texts(&expected, &records), Vec::<String>::new());
}
