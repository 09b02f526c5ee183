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
    // Less than packets of 60 ms make is a fault, a little less than packets of 20 ms make is none.
    let (expected, records) = mixed(|who, t_ms| match (who, t_ms) {
        ("a", 12_000) => 40,
        ("d", _) => 49,
        ("b", _) => 146,
        _ => 150,
    });
    let want = ["a does not receive the mix of r from 9 s to 12 s"];
    assert_eq!(texts(&expected, &records), want);
    // Lost packets were sent: they are the loss's own figure.
    let (expected, mut records) = mixed(|_, _| 40);
    for row in records.iter_mut().flat_map(|record| &mut record.sample.received) {
        row.packets_lost = 10;
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

/// Changes the rows of what `listener` receives, in windows that end after `after_ms`.
fn change(
    records: &mut [SampleRecord],
    listener: &str,
    after_ms: u64,
    change: impl Fn(&mut wire::quality::ReceivedTrack),
) {
    let theirs = records.iter_mut().filter(|r| r.person == listener && r.t_ms > after_ms);
    theirs.flat_map(|record| &mut record.sample.received).for_each(change);
}

#[test]
fn a_picture_that_stands_still_is_a_failure_though_packets_come() {
    let mut records = samples(|_, _, _, _| true);
    for row in records.iter_mut().flat_map(|r| &mut r.sample.received) {
        let video = row.kind == MediaKind::Video;
        row.frames_per_second = video.then_some(0.4);
        row.total_packets_received = Some(10_000);
    }
    assert_eq!(texts(&everyone(), &records), Vec::<String>::new(), "a frame is enough");
    change(&mut records, "d", 12_000, |row| {
        row.frames_per_second = row.frames_per_second.map(|_| 0.0);
    });
    let failures = subscriptions(&everyone(), &records);
    let want =
        "d receives no video of anyone since 12 s: packets came, and no picture could be shown";
    assert_eq!(failures.iter().map(|f| f.text.as_str()).collect::<Vec<_>>(), [want]);
    assert_eq!(failures[0].listeners, ["d"]);
    // Where nobody counts frames, packets are all that is known.
    change(&mut records, "d", 0, |row| row.frames_per_second = None);
    assert_eq!(texts(&everyone(), &records), Vec::<String>::new());
}

#[test]
fn sound_of_which_half_is_lost_or_concealed_is_dead() {
    let half = "c receives no audio of anyone since 15 s: packets came, and half or more of the \
                sound was lost";
    type Change = fn(&mut wire::quality::ReceivedTrack);
    let cases: [(Change, &[&str]); 4] = [
        (|row| row.packets_lost = 59, &[]),
        (|row| row.packets_lost = 60, &[half]),
        (|row| row.concealed_pct = Some(49.9), &[]),
        (|row| row.concealed_pct = Some(50.0), &[half]),
    ];
    for (what, want) in cases {
        let mut records = samples(|_, _, _, _| true);
        change(&mut records, "c", 15_000, |row| {
            if row.kind == MediaKind::Audio {
                what(row);
            }
        });
        assert_eq!(texts(&everyone(), &records), want);
    }
    // A mix likewise.
    let (expected, mut records) = mixed(|_, _| 70);
    change(&mut records, "a", 0, |row| row.packets_lost = 80);
    for name in ["b", "c", "d"] {
        change(&mut records, name, 0, |row| row.packets_lost = 65);
    }
    let want = "a does not receive the mix of r since 3 s: packets came, and half or more of the \
                sound was lost";
    assert_eq!(texts(&expected, &records), [want]);
}

/// The outage of a row that lasted `ms` and ended `ago_ms` before the window did.
fn away(ms: f64, ago_ms: f64) -> Option<wire::quality::Outage> {
    Some(wire::quality::Outage { ms, ago_ms })
}

#[test]
fn what_was_away_for_long_fails_with_participant_and_moment() {
    let cases: [(&str, MediaKind, f64, &[&str]); 4] = [
        ("c", MediaKind::Audio, 999.0, &[]),
        (
            "c",
            MediaKind::Audio,
            1_500.0,
            &["c receives no audio of a from 12 s to 14 s: no sound could be played for 1.5 s"],
        ),
        ("d", MediaKind::Video, 1_999.0, &[]),
        (
            "d",
            MediaKind::Video,
            5_000.0,
            &["d receives no video of a from 9 s to 14 s: the picture stood still for 5.0 s"],
        ),
    ];
    for (who, kind, ms, want) in cases {
        let mut records = samples(|_, _, _, _| true);
        let record = records.iter_mut().find(|r| r.person == who && r.t_ms == 15_000).unwrap();
        let row =
            |row: &&mut wire::quality::ReceivedTrack| row.participant == "p-a" && row.kind == kind;
        record.sample.received.iter_mut().find(row).unwrap().outage = away(ms, 1_200.0);
        assert_eq!(texts(&everyone(), &records), want);
        // A cut that the scenario made is none of the server's faults.
        let mut expected = everyone();
        let cut = Span { from_ms: 9_000, until_ms: Some(13_500) };
        expected.cuts.insert(who.into(), vec![cut]);
        assert_eq!(texts(&expected, &records), Vec::<String>::new());
    }
}

#[test]
fn a_pause_excuses_no_more_than_itself() {
    let cases: [(f64, f64, bool); 5] = [
        (1.0, 0.0, false),
        (0.4, 0.0, false),
        (0.1, 0.0, true),
        (0.1, 15.0, false),
        (0.0, 0.0, true),
    ];
    for (paused, rate, fails) in cases {
        let mut records = samples(|_, _, _, _| true);
        change(&mut records, "b", 15_000, |row| {
            if row.kind == MediaKind::Video {
                (row.paused_ratio, row.frames_per_second) = (Some(paused), Some(rate));
            }
        });
        assert_eq!(!texts(&everyone(), &records).is_empty(), fails, "{paused} {rate}");
        // Nothing came while it was paused.
        change(&mut records, "b", 15_000, |row| {
            if row.kind == MediaKind::Video {
                (row.packets_received, row.frames_per_second) = (0, None);
            }
        });
        assert_eq!(!texts(&everyone(), &records).is_empty(), paused <= 0.3, "{paused}");
    }
}

#[test]
fn tracks_that_take_turns_in_one_slot_fill_one() {
    let mut expected = everyone();
    expected.listeners[1].max_video = Some(2);
    let some = |shares: [f64; 3]| {
        let mut records = samples(|_, _, _, _| true);
        change(&mut records, "b", 15_000, |row| {
            let at = ["p-a", "p-c", "p-d"].iter().position(|name| *name == row.participant);
            if row.kind == MediaKind::Video {
                row.mapped_ratio = Some(shares[at.unwrap()]);
            }
        });
        texts(&expected, &records)
    };
    assert_eq!(some([1.0, 0.6, 0.4]), Vec::<String>::new(), "two slots, of which one changed");
    assert_eq!(some([0.95, 0.45, 0.4]), Vec::<String>::new(), "a moment between two tracks");
    assert_eq!(some([0.4, 0.3, 0.3]), ["b receives 1 of 2 video tracks since 15 s"]);
}

#[test]
fn what_has_just_come_into_a_slot_needs_no_frame_yet() {
    let still = |new: bool| {
        let mut records = samples(|_, _, _, _| true);
        change(&mut records, "b", 9_000, |row| {
            row.frames_per_second = (row.kind == MediaKind::Video).then_some(0.0);
            row.total_packets_received = Some(if new { 60 } else { 61 });
        });
        records
    };
    let mut expected = everyone();
    expected.listeners[1].max_video = Some(2);
    assert_eq!(texts(&expected, &still(true)), Vec::<String>::new());
    let want =
        "b receives 0 of 2 video tracks since 9 s: packets came, and no picture could be shown";
    assert_eq!(texts(&expected, &still(false)), [want]);
}

#[test]
fn what_the_scenario_itself_cuts_off_needs_no_more_than_packets() {
    let mut records = samples(|_, _, _, _| true);
    for name in ["a", "b", "c", "d"] {
        change(&mut records, name, 9_000, |row| {
            if row.participant == "p-a" || name == "a" {
                row.frames_per_second = (row.kind == MediaKind::Video).then_some(0.0);
                row.packets_lost = 90;
            }
        });
    }
    records.retain(|record| record.t_ms <= 15_000);
    let mut expected = everyone();
    expected.end_ms = 15_000;
    let all = texts(&expected, &records);
    assert!(all.iter().any(|text| text.starts_with("nobody receives video of a")), "{all:?}");
    // The streams of a link that was cut from 10 to 12 s are back by 15 s, both ways.
    let cut = Span { from_ms: 10_000, until_ms: Some(12_000) };
    expected.cuts.insert("a".into(), vec![cut]);
    assert_eq!(texts(&expected, &records), Vec::<String>::new());
    let early = Span { from_ms: 2_000, until_ms: Some(8_000) };
    expected.cuts.insert("a".into(), vec![early]);
    assert!(!texts(&expected, &records).is_empty(), "it was over for long");
    // Nothing at all for a whole window is missed, cut or not.
    for row in records.iter_mut().flat_map(|r| &mut r.sample.received) {
        row.packets_received = 0;
    }
    expected.cuts.insert("a".into(), vec![cut]);
    assert!(!texts(&expected, &records).is_empty());
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
