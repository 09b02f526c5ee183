use super::*;
use crate::judge::expected::Failure;
use crate::judge::threshold::{Condition, Threshold};
use crate::observe::metrics::NAMES;
use crate::record::{
    GeneratorUsage, Join, KernelUsage, LinkUsage, PersonKind, PersonLinkUsage, QuotaUsage,
    SampleRecord, ServerUsage, ThreadUsage, Way,
};
use crate::testing::audio_row;
use std::time::Duration;
use wire::QualitySample;

/// A quiet server on CPU 0 and a quiet generator on CPU 1.
fn quiet(t_ms: u64) -> MachineRecord {
    let kernel = |cpu: usize| KernelUsage {
        cpus: vec![cpu],
        cpus_busy: Some(0.4),
        waiting: 0.02,
        udp_drops: Some(0),
        softnet_drops: Some(0),
        softirq_most: Some(0.05),
        fds: Some(40),
        fd_limit: Some(1000),
        ..KernelUsage::default()
    };
    let server = ServerUsage {
        cpu_cores: Some(0.4),
        busiest_thread: Some(("media-0".into(), 0.3)),
        rss_mib: Some(30.0),
        signaling_ticks: Some((150, 0)),
        probes: Some((12, 0)),
        kernel: Some(kernel(0)),
        ..ServerUsage::default()
    };
    let own = GeneratorUsage { cpu_cores: 0.3, kernel: Some(kernel(1)), ..Default::default() };
    MachineRecord { t_ms, server: Some(server), generator: own, ..MachineRecord::default() }
}

/// Ten windows of 3 s; `change` is done to those from one to another.
fn run(windows: std::ops::Range<usize>, change: impl Fn(&mut ServerUsage)) -> Vec<MachineRecord> {
    let mut machine: Vec<MachineRecord> = (1..=10).map(|i| quiet(i * 3000)).collect();
    for record in &mut machine[windows] {
        change(record.server.as_mut().expect("local"));
    }
    machine
}

fn kernel(server: &mut ServerUsage) -> &mut KernelUsage {
    server.kernel.as_mut().expect("local")
}

fn at(t_ms: u64) -> Break {
    Break { t_ms, why: "loss".into(), ..Break::default() }
}

fn first(machine: &[MachineRecord], broke: Option<&Break>) -> String {
    let found = judge(machine, &GeneratorHealth::default(), broke);
    assert!(broke.is_none() || found.evidence[0].starts_with("quality broke"), "{found:?}");
    found.first.expect("judged")
}

fn throttle(server: &mut ServerUsage) {
    kernel(server).quota = Some(QuotaUsage { cores: 0.3, periods: 30, throttled: 20 });
}

fn drop_at_sockets(server: &mut ServerUsage) {
    kernel(server).udp_drops = Some(500);
}

fn full(server: &mut ServerUsage) {
    (kernel(server).cpus_busy, server.cpu_cores) = (Some(0.99), Some(0.97));
}

fn hot(server: &mut ServerUsage) {
    kernel(server).cpus = vec![0, 1];
    kernel(server).cpus_busy = Some(0.6);
    server.busiest_thread = Some(("media-0".into(), 0.98));
}

#[test]
fn each_resource_is_named_for_what_it_does() {
    type Change = fn(&mut ServerUsage);
    let cases: [(&str, Change); 11] = [
        ("cpu_quota", throttle),
        ("socket_buffer", drop_at_sockets),
        ("cpu", full),
        ("cpu", |server| {
            (kernel(server).cpus_busy, kernel(server).waiting) = (Some(0.75), 0.5);
        }),
        ("thread", hot),
        ("fds", |server| kernel(server).fds = Some(999)),
        ("fds", |server| {
            server.drops.insert("http/too_many_connections".into(), 7);
        }),
        ("memory", |server| kernel(server).oom_kills = Some(1)),
        ("signaling", |server| server.signaling_ticks = Some((150, 40))),
        ("signaling", |server| {
            (server.signaling_ticks, server.probes) = (None, Some((12, 3)));
        }),
        ("network", |server| {
            let link = LinkUsage { drops: 3, ..LinkUsage::default() };
            kernel(server).links = vec![LinkUsage::default(), link];
        }),
    ];
    for (id, change) in cases {
        assert_eq!(first(&run(3..10, change), Some(&at(14_000))), id);
        assert_eq!(first(&run(3..10, change), None), "none", "quality held: {id}");
        let early = run(0..1, change);
        let later = first(&early, Some(&at(25_000)));
        assert_eq!(later, "unexplained", "what was over before does not explain it: {id}");
    }
    let full_link = run(3..10, |server| {
        let (mbit_per_s, limit) = (9.5, Some(10.0));
        let link = LinkUsage { mbit_per_s, limit_mbit_per_s: limit, ..LinkUsage::default() };
        kernel(server).links = vec![link];
    });
    assert_eq!(first(&full_link, Some(&at(14_000))), "network");
    let late_ticks = run(3..10, |server| {
        server.mix.insert("moim_mix_ticks_total".into(), 150);
        server.mix.insert("moim_mix_ticks_late_total".into(), 3);
    });
    assert_eq!(first(&late_ticks, Some(&at(14_000))), "mixer_deadline");
}

#[test]
fn consequences_are_not_the_cause() {
    let machine = run(3..10, |server| {
        throttle(server);
        drop_at_sockets(server);
        (kernel(server).cpus_busy, kernel(server).waiting) = (Some(0.8), 0.6);
        server.signaling_ticks = Some((150, 90));
    });
    let found = judge(&machine, &GeneratorHealth::default(), Some(&at(14_000)));
    assert_eq!((found.first.as_deref(), found.second), (Some("cpu_quota"), None));
    assert_eq!(found.state.as_deref(), Some("suspected"));
    let follows = found.evidence.iter().filter(|text| text.contains("follows from cpu_quota"));
    assert_eq!(follows.count(), 3, "{:?}", found.evidence);
    assert!(found.evidence.iter().any(|text| text.contains("since 9 s")), "{:?}", found.evidence);
    // A buffer that overflowed long before the CPU was short is a cause of its own.
    let machine = run(1..10, drop_at_sockets);
    let mut machine = machine;
    machine[6..].iter_mut().for_each(|record| full(record.server.as_mut().expect("local")));
    let found = judge(&machine, &GeneratorHealth::default(), Some(&at(20_000)));
    let named = (found.first.as_deref(), found.second.as_deref());
    assert_eq!(named, (Some("socket_buffer"), Some("cpu")), "{:?}", found.evidence);
}

#[test]
fn a_thread_must_stay_hot_and_its_cpus_must_have_room() {
    assert_eq!(first(&run(4..6, hot), Some(&at(16_000))), "unexplained", "two windows only");
    let crowded = run(3..10, |server| {
        hot(server);
        kernel(server).cpus_busy = Some(0.88);
    });
    assert_eq!(first(&crowded, Some(&at(16_000))), "unexplained");
}

#[test]
fn the_next_one_is_told_too() {
    let machine = run(3..10, |server| {
        let link = LinkUsage { drops: 90, ..LinkUsage::default() };
        kernel(server).links = vec![link];
        kernel(server).quota = Some(QuotaUsage { cores: 0.45, periods: 30, throttled: 0 });
    });
    let found = judge(&machine, &GeneratorHealth::default(), Some(&at(14_000)));
    let named = (found.first.as_deref(), found.second.as_deref());
    assert_eq!(named, (Some("network"), Some("cpu_quota")), "{:?}", found.evidence);
    assert!(found.evidence.last().expect("why").contains("near its limit"));
}

#[test]
fn a_generator_at_its_limit_is_never_the_servers_fault() {
    let reasons = vec!["timers fired 9 ms late".to_owned()];
    let late = GeneratorHealth { reasons: reasons.clone(), only_late_timers: true };
    let starved = GeneratorHealth { reasons, only_late_timers: false };
    let apart = run(3..10, full);
    for health in [&late, &starved] {
        let found = judge(&apart, health, Some(&at(14_000)));
        assert_eq!(found.first.as_deref(), Some("generator"), "CPUs of its own: {health:?}");
    }
    // On shared CPUs the side that used more of them is named.
    let mut shared = apart;
    for record in &mut shared {
        record.generator.kernel.as_mut().expect("ours").cpus = vec![0, 1];
    }
    let found = judge(&shared, &late, Some(&at(14_000)));
    assert_eq!(found.first.as_deref(), Some("cpu"));
    assert_eq!(judge(&shared, &starved, None).first.as_deref(), Some("generator"));
    shared.iter_mut().for_each(|record| record.generator.cpu_cores = 1.2);
    let found = judge(&shared, &late, Some(&at(14_000)));
    assert_eq!(found.first.as_deref(), Some("generator"));
}

#[test]
fn quality_breaks_in_the_first_window_that_fails() {
    let sample = |t_ms, lost| {
        let mut row = audio_row("p", "t", 100);
        (row.packets_lost, row.loss_pct) = (lost, Some(lost as f64));
        let sample = QualitySample { received: vec![row], ..Default::default() };
        SampleRecord { t_ms, person: "bot-1".into(), kind: PersonKind::Bot, sample }
    };
    let samples = [sample(2_900, 90), sample(5_900, 0), sample(8_900, 20), sample(11_900, 30)];
    let signs = Signs { samples: &samples, ..Signs::default() };
    let condition = |text| Condition::parse(text).expect(text);
    let loss = Threshold {
        metric: "loss_pct",
        condition: condition("user_p95 < 1"),
        from: Duration::ZERO,
        abort: None,
    };
    let found = first_break(&Signs { failed: &[&loss], ..signs }).expect("broke");
    assert_eq!(found.t_ms, 9_000, "the first sample is warm-up");
    assert_eq!(found.why, "loss_pct user_p95 < 1 does not hold: it was 16.7");
    assert!(!found.limited && found.allowed_ms.is_none());
    let late = Threshold { metric: "rtt_ms", condition: condition("p95 <= 400"), ..loss.clone() };
    let found = first_break(&Signs { failed: &[&late], ..signs }).expect("broke");
    assert_eq!(found.allowed_ms, Some(400.0));
    let join = Threshold { metric: "join_to_connected_ms", ..late.clone() };
    let found = first_break(&Signs { failed: &[&join], ..signs }).expect("broke");
    assert_eq!(found.allowed_ms.map(f64::round), Some(133.0), "three round trips");
    let small = Threshold { metric: "frame_height", ..loss.clone() };
    let found = first_break(&Signs { failed: &[&small], ..signs }).expect("broke");
    assert!(found.limited, "pictures may be small for lack of a path");
    let late = Threshold { from: Duration::from_secs(9), ..loss.clone() };
    let found = first_break(&Signs { failed: &[&late], ..signs }).expect("broke");
    assert_eq!(found.t_ms, 12_000, "earlier windows do not count");
    assert_eq!(found.why, "loss_pct user_p95 < 1 from 9 s on does not hold: it was 23.1");

    let join = |t_ms, took_ms| Join { person: "bot-1".into(), t_ms, took_ms };
    let joins = [join(1_000, 40.0), join(7_000, 2_500.0)];
    let slow = Threshold {
        metric: "join_to_connected_ms",
        condition: condition("max < 1000"),
        from: Duration::ZERO,
        abort: None,
    };
    let found =
        first_break(&Signs { failed: &[&loss, &slow], joins: &joins, ..signs }).expect("broke");
    assert_eq!(found.t_ms, 9_000);
    let found =
        first_break(&Signs { failed: &[&slow], joins: &joins, ..Signs::default() }).expect("broke");
    assert!(found.why.contains("it was 2500"), "{found:?}");

    let fault = (4_000, "bot-3 could not join".to_owned());
    let found = first_break(&Signs { failed: &[&loss], first_fault: Some(&fault), ..signs })
        .expect("broke");
    assert_eq!((found.t_ms, found.why), fault.clone());
    let silent = Failure {
        listeners: vec!["bot-1".into()],
        publisher: None,
        kind: None,
        since_ms: 2_000,
        until_ms: None,
        text: "silence".into(),
    };
    let found = first_break(&Signs {
        first_fault: Some(&fault),
        subscriptions: std::slice::from_ref(&silent),
        ..signs
    })
    .expect("broke");
    assert_eq!((found.t_ms, found.why.as_str()), (2_000, "silence"));
    assert_eq!(found.people, ["bot-1"]);
    assert_eq!(first_break(&Signs { joins: &joins, ..signs }), None);
    assert!(NAMES.contains(&slow.metric));
}

#[test]
fn quality_breaks_in_the_first_window_whose_word_is_danger() {
    let sample = |t_ms, person: &str, lost| {
        let mut row = audio_row("p", "t", 100);
        (row.packets_lost, row.loss_pct) = (lost, Some(100.0 * lost as f64 / (lost + 100) as f64));
        let sample = QualitySample { received: vec![row], ..Default::default() };
        SampleRecord { t_ms, person: person.into(), kind: PersonKind::Bot, sample }
    };
    let mut samples = Vec::new();
    for t_ms in [2_900, 5_900, 8_900, 11_900] {
        samples.push(sample(t_ms, "bot-1", 0));
        samples.push(sample(t_ms, "bot-2", if t_ms > 6_000 { 20 } else { 3 }));
    }
    let machine = run(0..0, |_| {});
    let danger = Some(Danger { machine: &machine, cpus: 1 });
    let signs = Signs { samples: &samples, ..Signs::default() };
    assert_eq!(first_break(&signs), None, "the run's word is another");
    let found = first_break(&Signs { danger, ..signs }).expect("broke");
    assert_eq!((found.t_ms, &found.people[..]), (9_000, &["bot-2".to_owned()][..]), "{found:?}");
    assert_eq!(found.why, "danger: 16.7 % lost (95th percentile of people)");
    // The server's CPU, before that.
    let machine = run(1..10, full);
    let danger = Some(Danger { machine: &machine, cpus: 1 });
    let found = first_break(&Signs { danger, ..signs }).expect("broke");
    assert_eq!((found.t_ms, &*found.why), (6_000, "danger: the server used 97 % of its CPUs"));
    assert!(found.people.is_empty());
}

fn person_link(person: &str, dropped: u64, mbit_per_s: f64) -> PersonLinkUsage {
    PersonLinkUsage {
        person: person.into(),
        network: "slow".into(),
        way: Way::Down,
        packets: 1000,
        dropped,
        mbit_per_s,
        limit_mbit_per_s: Some(1.5),
        delay_ms: Some(290.0),
    }
}

#[test]
fn a_network_that_the_server_keeps_under_is_named_if_pictures_were_limited() {
    let sends = |windows, mbit_per_s| {
        run(windows, |server| {
            let limit_mbit_per_s = Some(100.0);
            let link = LinkUsage { mbit_per_s, limit_mbit_per_s, ..LinkUsage::default() };
            kernel(server).links = vec![link];
        })
    };
    let limited = Break { limited: true, ..at(12_000) };
    assert_eq!(first(&sends(0..10, 80.0), Some(&limited)), "network");
    assert_eq!(first(&sends(0..10, 80.0), Some(&at(12_000))), "unexplained", "nothing was limited");
    assert_eq!(first(&sends(0..10, 70.0), Some(&limited)), "unexplained", "there is room");
    let mut short = sends(0..10, 10.0);
    short[..5].clone_from_slice(&sends(0..10, 80.0)[..5]);
    assert_eq!(first(&short, Some(&limited)), "unexplained", "not for long");
}

#[test]
fn a_participants_link_is_named_with_the_participant() {
    let linked = |links: &[PersonLinkUsage]| {
        let mut machine = run(0..0, |_| {});
        machine[2..].iter_mut().for_each(|record| record.person_links = links.to_vec());
        machine
    };
    let judged = |links: &[PersonLinkUsage], people: &[&str]| {
        let people = people.iter().map(|name| (*name).to_owned()).collect();
        let broke = Break { people, ..at(12_000) };
        judge(&linked(links), &GeneratorHealth::default(), Some(&broke))
    };
    let found = judged(&[person_link("bot-4", 20, 0.4)], &[]);
    let named = (found.first.as_deref(), found.person.as_deref(), found.state.as_deref());
    assert_eq!(named, (Some("link"), Some("bot-4"), Some("suspected")), "it loses 2 %");
    let found = judged(&[person_link("bot-4", 0, 1.35)], &["bot-4"]);
    assert_eq!(found.first.as_deref(), Some("link"), "it sends 90 % of its rate");
    let text = "link (12–15 s): the link slow of bot-4 (down) dropped 0 of 1000 packets and sent \
                1.35 of 1.50 Mbit/s, 290 ms late; since 6 s";
    assert!(found.evidence.iter().any(|evidence| evidence == text), "{:?}", found.evidence);
    let found = judged(&[person_link("bot-4", 19, 1.34)], &["bot-4"]);
    assert_eq!(found.first.as_deref(), Some("unexplained"), "below both");
    let paused = Break { people: vec!["bot-4".into()], limited: true, ..at(12_000) };
    let links = [person_link("bot-4", 0, 1.2)];
    let found = judge(&linked(&links), &GeneratorHealth::default(), Some(&paused));
    let named = (found.first.as_deref(), found.person.as_deref());
    assert_eq!(named, (Some("link"), Some("bot-4")), "the server keeps under it");
    let wide = [PersonLinkUsage { limit_mbit_per_s: Some(100.0), ..person_link("bot-4", 0, 1.2) }];
    let found = judge(&linked(&wide), &GeneratorHealth::default(), Some(&paused));
    assert_eq!(found.first.as_deref(), Some("unexplained"), "a long link with room");
    // Of a few packets one is no share.
    let few = PersonLinkUsage { packets: 49, ..person_link("bot-4", 40, 0.4) };
    assert_eq!(judged(&[few], &[]).first.as_deref(), Some("unexplained"));
    // What broke for one is not another's link's doing.
    let two = [person_link("bot-2", 300, 1.5), person_link("bot-4", 100, 1.5)];
    assert_eq!(judged(&two, &["bot-4", "bot-1"]).person.as_deref(), Some("bot-4"));
    assert_eq!(judged(&two, &["bot-1"]).first.as_deref(), Some("unexplained"));
    // A server elsewhere tells nothing: the links are the lab's own.
    let mut elsewhere = linked(&two);
    elsewhere.iter_mut().for_each(|record| record.server = None);
    let found = judge(&elsewhere, &GeneratorHealth::default(), Some(&at(12_000)));
    assert_eq!(found.person.as_deref(), Some("bot-2"), "the worst");
    // A loss that the scenario wants and nobody minds is no bottleneck.
    let held = judge(&elsewhere, &GeneratorHealth::default(), None);
    assert_eq!((held.first.as_deref(), held.person), (Some("none"), None));
}

#[test]
fn a_link_that_takes_half_of_what_is_allowed_is_named_if_it_took_too_long() {
    let far = |ms| {
        let mut machine = run(0..0, |_| {});
        for record in &mut machine[2..] {
            let link = |way, delay_ms| PersonLinkUsage {
                way,
                delay_ms: Some(delay_ms),
                ..person_link("bot-4", 0, 0.4)
            };
            let half = || [link(Way::Up, ms / 2.0), link(Way::Down, ms / 2.0)];
            // Two of one person, such as by two candidates of ICE, are no longer way.
            record.person_links = half().into_iter().chain(half()).collect();
        }
        machine
    };
    let late = Break { allowed_ms: Some(400.0), ..at(12_000) };
    let judged = |ms, broke| judge(&far(ms), &GeneratorHealth::default(), Some(broke));
    let found = judged(200.0, &late);
    let named = (found.first.as_deref(), found.person.as_deref());
    assert_eq!(named, (Some("link"), Some("bot-4")), "{:?}", found.evidence);
    let text = "the link slow of bot-4 takes 200 ms there and back, of 400 that are allowed";
    assert_eq!(found.evidence[1], text);
    assert_eq!(judged(199.0, &late).first.as_deref(), Some("unexplained"), "most is elsewhere");
    assert_eq!(judged(500.0, &at(12_000)).first.as_deref(), Some("unexplained"), "not late");
}

#[test]
fn a_thread_that_stood_still_is_named_and_what_follows_from_it_is_not() {
    let stalled = |server: &mut ServerUsage| {
        server.stalled_ticks.insert("media-0".into(), 30);
        kernel(server).udp_drops = Some(500);
    };
    let found = judge(&run(3..4, stalled), &GeneratorHealth::default(), Some(&at(11_000)));
    assert_eq!((found.first.as_deref(), found.second), (Some("stall"), None));
    let text = "stall (9–12 s): thread media-0 stood still for 1.5 s, and 1500 ms more; since 9 s";
    assert!(found.evidence.iter().any(|one| one == text), "{:?}", found.evidence);
    let starved = run(3..10, |server| {
        stalled(server);
        throttle(server);
    });
    assert_eq!(first(&starved, Some(&at(14_000))), "cpu_quota", "it got no CPU");
}

#[test]
fn answers_that_the_lab_itself_was_too_late_for_accuse_nobody() {
    let late = |change: fn(&mut GeneratorUsage)| {
        let mut machine = run(3..10, |server| {
            (server.signaling_ticks, server.probes) = (Some((150, 0)), Some((12, 9)));
        });
        machine.iter_mut().for_each(|record| change(&mut record.generator));
        first(&machine, Some(&at(14_000)))
    };
    assert_eq!(late(|_| {}), "signaling", "the lab was punctual");
    assert_eq!(late(|own| own.input_lag_ms_p99 = 300.0), "unexplained");
    assert_eq!(late(|own| own.timer_lag_ms_p99 = 9.0), "unexplained");
    let full = |own: &mut GeneratorUsage| {
        own.fullest_thread = Some(ThreadUsage { name: "lab".into(), cores: 0.5, waited: 0.48 });
    };
    assert_eq!(late(full), "unexplained");
}

#[test]
fn nothing_is_known_of_a_server_elsewhere() {
    let mut machine = run(0..0, |_| {});
    machine.iter_mut().for_each(|record| record.server = None);
    assert_eq!(first(&machine, Some(&at(9_000))), "unexplained");
    assert_eq!(first(&machine, None), "none");
    assert_eq!(first(&[], Some(&at(9_000))), "unexplained");
}

#[test]
fn a_declared_limit_is_held_against_what_goes_to_people() {
    let limit = crate::record::LinkLimit { mbit_per_s: Some(100.0), packets_per_s: None };
    let declared = |mbit| {
        run(0..10, |server| {
            (server.link_limit, server.mbit_out_per_s) = (limit, Some(mbit));
        })
    };
    assert_eq!(first(&declared(91.0), Some(&at(9_000))), "network");
    assert_eq!(first(&declared(60.0), Some(&at(9_000))), "unexplained");
    // Headers take their share of the link: 50 000 packets a second are 11 Mbit/s of them.
    let mut headers = declared(80.0);
    for server in headers.iter_mut().filter_map(|record| record.server.as_mut()) {
        server.packets_out_per_s = Some(50_000.0);
    }
    assert_eq!(first(&headers, Some(&at(9_000))), "network");
    // A server elsewhere that tells nothing: what the bots receive.
    let limit = crate::record::LinkLimit { mbit_per_s: None, packets_per_s: Some(10_000.0) };
    let elsewhere = ServerUsage { link_limit: limit, ..ServerUsage::default() };
    let mut machine = run(0..0, |_| {});
    for record in &mut machine {
        record.server = Some(elsewhere.clone());
        record.generator.packets_in_per_s = Some(9_500.0);
    }
    assert_eq!(first(&machine, Some(&at(9_000))), "network");
}
