use super::visit::Until;
use super::*;
use crate::clients::Server;
use crate::clients::bot::driver::{Driver, Options};
use crate::clients::bot::marks::Turn;
use crate::clients::bot::spec::{BotCommand, BotDriver, BotSpec, SlotPool};
use crate::clients::bot::tones::ToneRole;
use crate::clients::bot::words::{AudioSource, Media, VideoSource};
use crate::clients::seat::Adapter;
use crate::judge::checks;
use crate::people::stage::{Outcome, Stage};
use crate::record::{PersonKind, PersonMeta, Writer};
use crate::scenario::{Arrival, Crowd, RoomGroup, Scenario, Stay};
use crate::testing::bots::FakeDriver;
use crate::testing::server::FakeServer;
use crate::testing::streams::FakeStreams;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, sleep};
use wire::quality::SAMPLE_INTERVAL_MS;
use wire::room::{AudioTopology, VideoTopology};

/// What should come at once may take so long on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Theatre {
    stage: Arc<Stage>,
    server: FakeServer,
    _dir: tempfile::TempDir,
}

impl Theatre {
    async fn open(names: &[&str]) -> Self {
        let server = FakeServer::start().await;
        let dir = tempfile::tempdir().expect("tempdir");
        let writer = Writer::create(dir.path(), "x", SystemTime::UNIX_EPOCH, "").expect("a record");
        let url = format!("http://127.0.0.1:{}", server.port);
        let url = crate::base::Url::parse(&url).expect("a URL");
        let meta = |name: &&str| PersonMeta {
            name: (*name).to_owned(),
            kind: PersonKind::Bot,
            room: "r".into(),
            role: None,
            network: None,
            participant: None,
        };
        let (adapter, paths) = Default::default();
        let target = Server { adapter, url, paths };
        let stage = Stage::new(target, writer, names.iter().map(meta).collect());
        Self { stage: Arc::new(stage), server, _dir: dir }
    }

    /// Waits until `done`; what there is by then is kept by the stage.
    async fn until(&self, what: &str, mut done: impl FnMut(&Stage) -> bool) {
        let begin = Instant::now();
        while !done(&self.stage) {
            assert!(begin.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn guest<D: BotDriver>(&self, driver: &Arc<D>, spec: BotSpec, place: &Place) -> Guest<D> {
        let (stage, driver) = (self.stage.clone(), driver.clone());
        Guest { stage, driver, spec, place: place.clone() }
    }

    fn end(&self) -> Outcome {
        let end_ms = self.stage.now_ms();
        self.stage.finish();
        self.stage.outcome(end_ms, false)
    }
}

/// A room of a kind, with as many bots.
fn place(audio: AudioTopology, video: VideoTopology, bots: u32) -> Place {
    let text = "name: x\nserve: {}\nduration: 5s\nrooms: [{ people: { bot: 1 } }]\n";
    let scenario = Scenario::parse(text, "x").expect("valid");
    let group = RoomGroup { audio, video, bots, ..scenario.rooms[0].clone() };
    let (role, turn, voices) = (None, None, bots - 1);
    let (room, listening) = ("r".into(), Some(Turn { place: 0, of: bots }));
    let (sends_video, network) = (true, None);
    Place { room, group, role, sends_video, turn, listening, voices, network }
}

fn spec(index: u32, media: Media) -> BotSpec {
    BotSpec { name: format!("bot-{index}"), index, media, ..BotSpec::default() }
}

/// From now on, to stay.
fn always() -> Vec<Stay> {
    vec![Stay { from: Duration::ZERO, until: None }]
}

const BOTH: Media = Media { audio: AudioSource::Speech, video: VideoSource::P360 };

/// Three real bots, each with each, over a server that only relays; one leaves, one comes later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bots_in_a_mesh_see_and_hear_each_other() {
    let theatre = Theatre::open(&["bot-1", "bot-2", "bot-3"]).await;
    let driver = Arc::new(Driver::start(&Options::default()).expect("bots"));
    let place = place(AudioTopology::Mesh, VideoTopology::Mesh, 3);
    for index in 1..=3 {
        let guest = theatre.guest(&driver, spec(index, BOTH), &place);
        tokio::spawn(bot(guest, Instant::now(), always()));
        theatre.until("bot connected", |stage| stage.standing().0 as u32 == index).await;
    }
    let all_seen = |samples: &[wire::QualitySample]| {
        let whole = |sample: &&wire::QualitySample| {
            let alive = sample.received.iter().filter(|row| row.packets_received > 10);
            let pictures = sample.received.iter().filter_map(|row| row.frames_per_second);
            alive.count() == 4 && pictures.filter(|fps| *fps > 10.0).count() == 2
        };
        samples.iter().filter(whole).count() >= 3
    };
    theatre
        .until("everyone sees and hears two others", |_| {
            let posted = theatre.server.with(|world| world.samples.clone());
            let samples = posted.into_iter().map(|value| serde_json::from_value(value).unwrap());
            all_seen(&samples.collect::<Vec<_>>())
        })
        .await;
    assert!(theatre.stage.order(2, BotCommand::Leave), "bot-2 is there");
    theatre.until("bot-2 left", |stage| stage.standing().0 == 2).await;
    let later = theatre.stage.now_ms() + 3 * SAMPLE_INTERVAL_MS;
    theatre.until("two go on", |stage| stage.now_ms() > later).await;
    let outcome = theatre.end();
    assert_eq!(outcome.faults, Vec::<String>::new());
    assert_eq!(outcome.expected.tracks.len(), 6);
    let failures = checks::subscriptions(&outcome.expected, &outcome.samples);
    assert!(failures.is_empty(), "{failures:?}");
    let last = outcome.samples.last().expect("samples").sample.clone();
    assert_eq!(last.received.iter().filter(|row| row.packets_received > 10).count(), 2);
    assert_eq!(last.sent.len(), 2, "{:?}", last.sent);
    assert!(last.rtt_ms.is_some_and(|rtt| rtt < 1000.0) && last.srtp_cipher.is_some());
    assert!(last.received.iter().all(|row| row.packets_lost == 0));
    let first = outcome.samples.iter().filter_map(|record| record.sample.join_to_first_audio_ms);
    assert_eq!(first.count(), 3, "each has one first audio, however many connections");
    assert_eq!(driver.health().drops.get("seal_error"), None);
    theatre.server.with(|world| {
        let calls = |name: &str| world.calls.iter().filter(|call| *call == name).count();
        assert_eq!((calls("room.peer_offer"), calls("room.peer_answer")), (3, 3));
        assert_eq!((calls("room.offer"), calls("room.announce")), (0, 3), "no media to the server");
    });
}

/// At a server of streams a bot offers a connection to each who sends; one that is refused ends its visit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bots_call_who_sends_a_stream_and_say_why_they_get_none() {
    let (streams, url) = FakeStreams::start().await;
    *streams.refuses.lock().expect("refuses") = true;
    let mut theatre = Theatre::open(&["bot-1", "bot-2"]).await;
    let stage = Arc::get_mut(&mut theatre.stage).expect("nobody is there yet");
    stage.server = Server { adapter: Adapter::Whip, url, paths: Default::default() };
    let driver = Arc::new(FakeDriver::default());
    let place = place(AudioTopology::Sfu, VideoTopology::Sfu, 2);
    for index in 1..=2 {
        let guest = theatre.guest(&driver, spec(index, BOTH), &place);
        tokio::spawn(bot(guest, Instant::now(), always()));
    }
    theatre.until("a fault", |stage| stage.standing().1 > 0).await;
    let outcome = theatre.end();
    let fault = outcome.faults.first().expect("a fault");
    assert!(
        fault.contains("no connection with r-bot-") && fault.contains("not for you (403)"),
        "{fault}"
    );
    let asked = streams.asked();
    assert!(asked.iter().any(|asked| asked.ends_with("/whip")), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_mixed_room_everyone_gets_the_mix_and_reports_what_he_hears() {
    let theatre = Theatre::open(&["bot-1", "bot-2"]).await;
    let driver = Arc::new(FakeDriver::default());
    let place = place(AudioTopology::Mcu, VideoTopology::None, 2);
    let tone = Media { audio: AudioSource::Tone, video: VideoSource::None };
    for index in 1..=2 {
        let guest = theatre.guest(&driver, spec(index, tone), &place);
        tokio::spawn(bot(guest, Instant::now(), always()));
    }
    theatre
        .until("samples of both", |_| theatre.server.with(|world| world.samples.len() >= 6))
        .await;
    let outcome = theatre.end();
    assert_eq!(outcome.faults, Vec::<String>::new());
    assert!(outcome.expected.listeners.iter().all(|listener| listener.mix));
    let failures = checks::subscriptions(&outcome.expected, &outcome.samples);
    assert!(failures.is_empty(), "{failures:?}");
    let mixes = &outcome.expected.mixes;
    assert!(mixes["bot-1"].windows >= 2 && mixes["bot-2"].windows >= 2, "{mixes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_come_and_go_and_are_counted() {
    let theatre = Theatre::open(&["bot-1", "bot-2", "bot-3"]).await;
    theatre.server.with(|world| world.refuse.push("bot-2".into()));
    let driver = Arc::new(FakeDriver { mute_ice: vec!["bot-3".into()], ..FakeDriver::default() });
    let place = place(AudioTopology::Mcu, VideoTopology::None, 3);
    let tone = Media { audio: AudioSource::Tone, video: VideoSource::None };
    let stay = Duration::from_millis(300);
    for index in 1..=3 {
        let guest = theatre.guest(&driver, spec(index, tone), &place);
        tokio::spawn(churn(guest, Instant::now(), stay));
    }
    theatre
        .until("three loops and failures of both kinds", |stage| {
            let churn = stage.roster(|roster| roster.churn().clone());
            let failed = |reason: &str| churn.failures.get(reason).is_some_and(|count| *count > 1);
            churn.loops >= 3 && failed("room_full") && failed("ice_dtls")
        })
        .await;
    let outcome = theatre.end();
    let churn = outcome.expected.churn;
    assert_eq!(churn.join_to_first_audio_ms.len() as u64, churn.loops);
    assert_eq!(churn.failures.len(), 2, "{churn:?}");
    let faults = outcome.faults.join("\n");
    assert!(faults.contains("bot-2 could not join: room_full: on purpose"), "{faults}");
    let visits = outcome.expected.listeners.iter().filter(|visit| visit.person == "bot-1");
    let ids: BTreeSet<&str> = visits.map(|visit| visit.participant.as_str()).collect();
    assert!(ids.len() >= 3, "each visit is a participant of its own: {ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_hears_nothing_is_a_failure() {
    let theatre = Theatre::open(&["bot-1"]).await;
    let driver = Arc::new(FakeDriver { silent: true, ..FakeDriver::default() });
    let place = place(AudioTopology::Mcu, VideoTopology::None, 1);
    let guest = theatre.guest(&driver, spec(1, BOTH), &place);
    let audio_within = Some(Duration::from_millis(200));
    let until = Until { stay: Some(PATIENCE), audio_within, ..Until::default() };
    let failure = guest.visit(1).make(until).await.expect_err("silence");
    assert_eq!(failure.reason, "no_audio");
    assert_eq!(failure.text, "heard nothing within 0.2 s of connecting");
}

#[test]
fn a_room_of_tones_has_a_plan_and_a_place_for_each() {
    let tone = Media { audio: AudioSource::Tone, video: VideoSource::None };
    let mixed = place(AudioTopology::Mcu, VideoTopology::None, 3);
    // Bots of the second room of a run.
    let roles: Vec<ToneRole> =
        (4..=6).map(|index| mixed.tones(&spec(index, tone)).expect("a role")).collect();
    let places: BTreeSet<u32> = roles.iter().map(|role| role.place).collect();
    assert_eq!(places.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
    assert!(roles.iter().all(|role| role.listens && role.plan == roles[0].plan));
    let other = Place { room: "other".into(), ..mixed.clone() };
    let elsewhere = other.tones(&spec(1, tone)).expect("a role");
    assert_ne!(elsewhere.plan.seed, roles[0].plan.seed);
    assert_eq!(mixed.tones(&spec(1, BOTH)), None);
    let group = RoomGroup { chromium: 1, ..mixed.group.clone() };
    let with_browser = Place { group, ..mixed.clone() };
    let role = with_browser.tones(&spec(1, tone)).expect("a role");
    assert!(!role.listens, "a browser's own sound is in no plan");
    let slots = |audio, video| place(audio, video, 1).slots(SlotPool { audio: 8, video: 12 });
    let pool = |audio, video| SlotPool { audio, video };
    assert_eq!(slots(AudioTopology::Mcu, VideoTopology::Sfu), pool(1, 12));
    assert_eq!(slots(AudioTopology::Sfu, VideoTopology::None), pool(8, 0));
    assert_eq!(slots(AudioTopology::Mesh, VideoTopology::Mesh), pool(0, 0));
}

/// Five a second for a place that is free only every second or so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_arrive_at_a_rate_and_who_finds_no_place_is_dropped() {
    let theatre = Theatre::open(&[]).await;
    let driver = Arc::new(FakeDriver::default());
    let place = place(AudioTopology::Mcu, VideoTopology::None, 2);
    let guests =
        (1..=2).map(|index| theatre.guest(&driver, spec(index, BOTH), &place)).collect::<Vec<_>>();
    let arrival = Arrival { per_second: 5.0, stay: Duration::from_secs(1), max: 1 };
    tokio::spawn(arrivals(guests, arrival, (Instant::now(), Duration::from_secs(3600))));
    theatre
        .until("two whole visits and somebody dropped", |stage| {
            let churn = stage.roster(|roster| roster.churn().clone());
            churn.loops >= 2 && churn.dropped >= 2
        })
        .await;
    let outcome = theatre.end();
    let churn = outcome.expected.churn;
    assert_eq!(outcome.faults, Vec::<String>::new());
    assert!(churn.failures.is_empty() && churn.arrived >= churn.dropped + churn.loops, "{churn:?}");
    let names: Vec<&str> = outcome.people.iter().map(|person| person.name.as_str()).collect();
    assert_eq!(names, ["bot-1"], "of two places one may be taken");
}

/// Three, one, two: who came last leaves first, and the room lives on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_are_there_as_who_leads_the_run_wants() {
    let theatre = Theatre::open(&[]).await;
    let driver = Arc::new(FakeDriver::default());
    let place = place(AudioTopology::Mcu, VideoTopology::None, 4);
    let guests = (1..=4).map(|index| theatre.guest(&driver, spec(index, BOTH), &place)).collect();
    tokio::spawn(crowd(guests));
    for (people, there) in
        [(3, vec![1, 2, 3]), (1, vec![1]), (2, vec![1, 2]), (9, vec![1, 2, 3, 4])]
    {
        theatre.stage.want(Crowd { people, per_second: 20.0 });
        theatre
            .until("as many as wanted", |stage| {
                stage.attending() == there && stage.standing().0 == there.len()
            })
            .await;
    }
    let outcome = theatre.end();
    assert_eq!(outcome.faults, Vec::<String>::new());
    assert!(outcome.expected.churn.failures.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_as_planned_is_no_fault_and_comes_again() {
    let theatre = Theatre::open(&["bot-1"]).await;
    let driver = Arc::new(FakeDriver::default());
    let place = place(AudioTopology::Mcu, VideoTopology::None, 2);
    let ms = Duration::from_millis;
    let begin = Instant::now();
    let stays = vec![
        Stay { from: ms(0), until: Some(ms(800)) },
        Stay { from: ms(1_000), until: Some(ms(1_001)) },
        Stay { from: ms(1_500), until: None },
    ];
    let one = theatre.guest(&driver, spec(1, BOTH), &place);
    let (guest, never) = (theatre.guest(&driver, spec(2, BOTH), &place), ms(3_600_000));
    tokio::spawn(bot(one, begin, always()));
    tokio::spawn(bot(guest, begin, stays));
    let late = theatre.guest(&driver, spec(3, BOTH), &place);
    tokio::spawn(bot(late, begin, vec![Stay { from: never, until: None }]));
    let samples = |theatre: &Theatre| theatre.server.with(|world| world.samples.len());
    theatre
        .until("both are there again", |stage| stage.standing().0 == 2 && stage.now_ms() > 1_500)
        .await;
    let before = samples(&theatre);
    theatre.until("samples of both", |_| samples(&theatre) >= before + 4).await;
    assert_eq!(theatre.stage.attending(), [1, 2]);
    let outcome = theatre.end();
    assert_eq!(outcome.faults, Vec::<String>::new());
    let failures = checks::subscriptions(&outcome.expected, &outcome.samples);
    assert!(failures.is_empty(), "{failures:?}");
    let visits = outcome.expected.listeners.iter().filter(|visit| visit.person == "bot-2");
    assert!(visits.count() >= 2);
    let names: Vec<&str> = outcome.people.iter().map(|person| person.name.as_str()).collect();
    assert_eq!(names, ["bot-1", "bot-2"], "who did not come is not missed");
    assert!(outcome.expected.churn.loops >= 1);
}
