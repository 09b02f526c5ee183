use super::*;
use crate::testing::{audio_row, meta, video_row};
use wire::QualitySample;

/// A person's samples every 3 s from `first_ms`: of tracks `a`, `b` and `c`, what `freezes(nth, track)` says.
fn person(
    name: &str,
    kind: PersonKind,
    first_ms: u64,
    freezes: impl Fn(u64, &str) -> u64,
) -> Vec<SampleRecord> {
    let sample = |nth| {
        let row = |track| {
            let mut row = video_row("p", track, 200);
            row.freezes = Some(freezes(nth, track));
            row
        };
        let received = ["a", "b", "c"].map(row).to_vec();
        QualitySample { interval_ms: 3_000, received, ..Default::default() }
    };
    (0..60)
        .map(|nth| SampleRecord {
            t_ms: first_ms + 3_000 * nth,
            person: name.into(),
            kind,
            sample: sample(nth),
        })
        .collect()
}

fn meta_of(people: &[(&str, PersonKind, &str, Option<usize>)]) -> Meta {
    let person = |(name, kind, room, network): &(&str, PersonKind, &str, Option<usize>)| {
        let (name, kind, room) = ((*name).into(), *kind, (*room).into());
        PersonMeta { name, kind, room, role: None, network: *network, participant: None }
    };
    Meta { people: people.iter().map(person).collect(), ..meta() }
}

fn both() -> Meta {
    meta_of(&[
        ("bot-1", PersonKind::Bot, "r", None),
        ("bot-2", PersonKind::Bot, "r", None),
        ("chromium-1", PersonKind::Chromium, "r", None),
    ])
}

/// Each track freezes once in every fourth sample.
fn often(nth: u64, _: &str) -> u64 {
    u64::from(nth % 4 == 2)
}

#[test]
fn the_same_freezes_agree_wherever_samples_end() {
    let mut samples = person("bot-1", PersonKind::Bot, 3_000, often);
    samples.extend(person("bot-2", PersonKind::Bot, 3_900, often));
    samples.extend(person("chromium-1", PersonKind::Chromium, 5_600, often));
    let found = compare(&both(), &samples).expect("both are there");
    assert_eq!((found.freeze_windows, found.freeze_windows_agreeing), (15, 15));
    assert_eq!(found.disagreements, [""; 0]);
}

#[test]
fn bots_with_a_broken_freeze_counter_disagree() {
    let mut samples = person("bot-1", PersonKind::Bot, 3_000, |_, _| 0);
    samples.extend(person("chromium-1", PersonKind::Chromium, 3_100, often));
    let found = compare(&both(), &samples).expect("both are there");
    assert_eq!((found.freeze_windows, found.freeze_windows_agreeing), (15, 0));
    let want = "browsers and bots counted the same freezes in 0 of 15 windows with one";
    assert_eq!(found.disagreements, [want]);
    // A few windows are too few to tell.
    samples.retain(|record| record.t_ms < 60_000);
    assert_eq!(compare(&both(), &samples).expect("both are there").disagreements, [""; 0]);
}

#[test]
fn one_freeze_more_or_less_agrees_and_two_do_not() {
    for (missed, agreeing) in [(1, 15), (2, 0)] {
        let fewer = |nth: u64, track: &str| {
            let counted = ["a", "b", "c"].iter().position(|one| *one == track) >= Some(missed);
            u64::from(counted) * often(nth, track)
        };
        let mut samples = person("bot-1", PersonKind::Bot, 3_000, often);
        samples.extend(person("chromium-1", PersonKind::Chromium, 3_100, fewer));
        let found = compare(&both(), &samples).expect("both are there");
        assert_eq!((found.freeze_windows, found.freeze_windows_agreeing), (15, agreeing));
    }
}

#[test]
fn loss_may_differ_by_chance_and_three_tenths_of_a_point() {
    let lossy = |name: &str, kind, lost| {
        let mut all = person(name, kind, 3_000, |_, _| 0);
        for record in &mut all {
            let mut row = audio_row("", "mix", 150 - lost);
            row.packets_lost = lost;
            record.sample.received = vec![row];
        }
        all
    };
    let agree = |lost| {
        let mut samples = lossy("bot-1", PersonKind::Bot, 6);
        samples.extend(lossy("chromium-1", PersonKind::Chromium, lost));
        compare(&both(), &samples).expect("both are there")
    };
    let found = agree(6);
    let loss = Loss { bots_pct: 4.0, browsers_pct: 4.0, browser_packets: 59 * 150 };
    assert_eq!((found.loss, found.disagreements), (Some(loss), vec![]));
    // Two thirds of a point, of so few packets, are chance.
    assert_eq!(agree(7).disagreements, [""; 0]);
    let found = agree(9);
    assert_eq!(found.disagreements, ["of the same tracks browsers lost 6.00 %, bots 4.00 %"]);
}

#[test]
fn sound_that_a_browser_did_not_count_as_lost_is_not_compared() {
    let mut samples = Vec::new();
    for (name, kind) in [("bot-1", PersonKind::Bot), ("chromium-1", PersonKind::Chromium)] {
        for mut record in person(name, kind, 3_000, |_, _| 0) {
            let outage = record.t_ms % 15_000 == 0;
            let lost = if outage { 70 } else { 0 };
            let mut row = audio_row("", "mix", 150 - lost);
            if kind == PersonKind::Bot {
                row.packets_lost = lost;
            } else {
                row.concealed_pct = Some(if outage { 40.0 } else { 0.2 });
            }
            record.sample.received = vec![row];
            samples.push(record);
        }
    }
    let found = compare(&both(), &samples).expect("both are there");
    assert_eq!(found.disagreements, [""; 0]);
    assert_eq!(found.loss.map(|loss| loss.bots_pct), Some(0.0), "what is left");
}

#[test]
fn a_counter_that_never_counts_is_found_where_one_track_freezes_at_a_time() {
    let one = |nth: u64, track: &str| u64::from(nth % 4 == 2 && track == "a");
    let mut samples = person("bot-1", PersonKind::Bot, 3_000, |_, _| 0);
    samples.extend(person("chromium-1", PersonKind::Chromium, 3_100, one));
    let found = compare(&both(), &samples).expect("both are there");
    assert_eq!((found.freeze_windows, found.freeze_windows_agreeing), (15, 15));
    let want = "of the same tracks browsers counted 15 freezes, bots 0";
    assert_eq!(found.disagreements, [want]);
}

#[test]
fn who_cannot_count_freezes_is_not_compared() {
    for unknown in ["bot-1", "chromium-1"] {
        let mut samples = person("bot-1", PersonKind::Bot, 3_000, often);
        samples.extend(person("chromium-1", PersonKind::Chromium, 3_100, often));
        let of = samples.iter_mut().filter(|record| record.person == unknown);
        of.flat_map(|record| &mut record.sample.received).for_each(|row| row.freezes = None);
        let found = compare(&both(), &samples).expect("both are there");
        assert_eq!((found.freeze_windows, found.disagreements), (0, vec![]));
    }
}

/// Everyone's loss of `mix` in percent at a moment, read rightly by all.
fn lossy(
    people: &[(&str, PersonKind, u64)],
    from_ms: u64,
    count: u64,
    lost: impl Fn(u64) -> u64,
) -> Vec<SampleRecord> {
    let mut samples = Vec::new();
    for (name, kind, offset_ms) in people {
        for mut record in person(name, *kind, from_ms + offset_ms, |_, _| 0) {
            if record.t_ms >= from_ms + 3_000 * count {
                break;
            }
            let gone = lost(record.t_ms);
            let mut row = audio_row("", "mix", 150 - gone);
            row.packets_lost = gone;
            record.sample.received = vec![row];
            samples.push(record);
        }
    }
    samples
}

#[test]
fn who_is_there_when_it_is_lossy_does_not_weigh() {
    // Many bots without loss, then few with it; a browser is there all the time.
    let bot = |name: &'static str| (name, PersonKind::Bot, 0);
    let chromium = ("chromium-1", PersonKind::Chromium, 300);
    let names = ["bot-1", "bot-2", "bot-3", "bot-4", "bot-5", "bot-6"];
    let lost = |t_ms| if t_ms > 90_000 { 15 } else { 0 };
    let mut samples = lossy(&names.map(bot), 3_000, 29, lost);
    samples.extend(lossy(&[bot("bot-7")], 3_000, 60, lost));
    samples.extend(lossy(&[chromium], 3_000, 60, lost));
    let mut people: Vec<_> = names.map(|name| (name, PersonKind::Bot, "r", None)).to_vec();
    people.push(("bot-7", PersonKind::Bot, "r", None));
    people.push(("chromium-1", PersonKind::Chromium, "r", None));
    let found = compare(&meta_of(&people), &samples).expect("both are there");
    assert_eq!(found.disagreements, [""; 0], "{:?}", found.loss);
}

#[test]
fn bursts_differ_by_more_than_single_losses() {
    let bot = ("bot-1", PersonKind::Bot, 0);
    let chromium = ("chromium-1", PersonKind::Chromium, 300);
    // A burst of 75 packets now and then, to each at their own time; the browser has three more of them.
    let mut samples = lossy(&[bot], 3_000, 60, |t_ms| if t_ms % 27_000 == 0 { 75 } else { 0 });
    samples.extend(lossy(
        &[chromium],
        3_000,
        60,
        |t_ms| {
            if t_ms % 18_000 < 3_000 { 75 } else { 0 }
        },
    ));
    let found = compare(&both(), &samples).expect("both are there");
    let loss = found.loss.expect("both received");
    assert!(loss.browsers_pct > loss.bots_pct + 1.5, "{loss:?}");
    assert_eq!(found.disagreements, [""; 0]);
}

#[test]
fn people_of_other_rooms_and_networks_are_not_compared() {
    let samples = || {
        let mut samples = person("bot-1", PersonKind::Bot, 3_000, |_, _| 0);
        samples.extend(person("chromium-1", PersonKind::Chromium, 3_100, often));
        samples
    };
    for (room, network) in [("other", None), ("r", Some(0))] {
        let meta = meta_of(&[
            ("bot-1", PersonKind::Bot, "r", None),
            ("chromium-1", PersonKind::Chromium, room, network),
        ]);
        assert_eq!(compare(&meta, &samples()), None);
    }
}
