use super::plan::Coming;
use super::*;
use crate::clients::bot::marks::Turn;
use crate::clients::bot::words::{AudioSource, Media, VideoSource};
use crate::judge::summary::Verdict;
use crate::scenario::{Arrival, Stay};
use crate::testing::bots::FakeDriver;
use crate::testing::server::FakeServer;
use std::fs;
use tokio::time::Instant;

struct Bench {
    dir: tempfile::TempDir,
    options: LoadOptions,
}

fn bench(url: &str, rest: &str) -> Bench {
    let dir = tempfile::tempdir().expect("tempdir");
    let scenario = dir.path().join("x.yaml");
    let text = format!("name: x\ntarget: {{ url: \"{url}\" }}\n{rest}");
    fs::write(&scenario, text).expect("write");
    let runs_dir = dir.path().join("runs");
    Bench { options: LoadOptions { scenario, runs_dir, ..LoadOptions::default() }, dir }
}

fn url(server: &FakeServer) -> String {
    format!("http://127.0.0.1:{}", server.port)
}

async fn run_fake(bench: &Bench, driver: FakeDriver) -> Run {
    let result = run(&bench.options, |_: &Server, _| Ok(driver), std::future::pending()).await;
    result.expect("a run")
}

/// How a run ends in which something failed: on a busy machine the tests' own timers are late.
fn failed(summary: &Summary) -> (Verdict, u8) {
    match summary.generator.healthy {
        true => (Verdict::Fail, 99),
        false => (Verdict::Inconclusive, 110),
    }
}

#[tokio::test]
async fn a_closed_port_is_111_with_cause_and_cure() {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        free.local_addr().expect("address").port()
    };
    let rest = "duration: 5s\nrooms: [{ people: { bot: 2 } }]\n";
    let bench = bench(&format!("http://127.0.0.1:{port}"), rest);
    let begin = Instant::now();
    let driver = |_: &Server, _| Ok(FakeDriver::default());
    let error = run(&bench.options, driver, std::future::pending()).await.expect_err("no target");
    assert_eq!(error.code(), 111);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    let text = error.to_string();
    assert!(text.contains("refused") && text.contains("moim serve"), "{text}");
    assert!(!bench.options.runs_dir.exists(), "no record of what was not run");
}

#[tokio::test]
async fn a_silent_target_is_111_too() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = listener.local_addr().expect("address").port();
    let rest = "duration: 5s\nrooms: [{ people: { bot: 2 } }]\n";
    let bench = bench(&format!("http://127.0.0.1:{port}"), rest);
    let driver = |_: &Server, _| Ok(FakeDriver::default());
    let error = run(&bench.options, driver, std::future::pending()).await.expect_err("silence");
    assert_eq!(error.code(), 111);
    assert!(error.to_string().contains("no answer in time"), "{error}");
}

#[test]
fn a_bad_scenario_is_104() {
    let bench = bench("http://127.0.0.1:1", "duration: 5s\nroms: []\n");
    assert_eq!(crate::check(&bench.options.scenario), 104);
    assert_eq!(crate::load(&bench.options), 104);
    assert_eq!(crate::render(bench.dir.path()), 104, "no record there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bot_that_stops_its_video_without_leaving_fails_the_run() {
    let server = FakeServer::start().await;
    let rest = "duration: 13s\nrooms: [{ people: { bot: 3 } }]\n\
                events: [{ at: 4s, bot: 2, do: stop_video }]\n";
    let bench = bench(&url(&server), rest);
    let run = run_fake(&bench, FakeDriver::default()).await;
    let summary = &run.summary;
    assert_eq!(summary.failures.len(), 1, "{:?}", summary.failures);
    let failure = &summary.failures[0];
    assert!(failure.starts_with("nobody receives video of bot-2 since "), "{failure}");
    assert_eq!((summary.verdict, summary.exit_code), failed(summary));
    assert_eq!(summary.people, 3);
    assert_eq!(summary.subscriptions, 10, "2 have 3 in most windows, bot-2 has 4");
    assert!(server.with(|world| world.samples.len()) >= 9, "samples are posted too");
    assert!(run.dir.join("report.html").exists());
    let record = crate::judge::whole::read(&run.dir).expect("record");
    assert_eq!(record.summary.failures, summary.failures);
    assert_eq!(record.summary.metrics["loss_pct"], summary.metrics["loss_pct"]);
    assert!(record.events.iter().any(|event| event.text == "StopVideo"));
    assert!(record.machine.len() >= 4, "{}", record.machine.len());
    assert!(record.meta.people.iter().all(|person| person.participant.is_some()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_is_well_and_sockets_may_be_lost() {
    let server = FakeServer::start().await;
    let rest = "duration: 10s\nrooms: [{ people: { bot: 3 } }]\n\
                thresholds: { loss_pct: [\"user_p95 < 1\"] }\n\
                events: [{ at: 5s, bot: 3, do: leave }]\n";
    let bench = bench(&url(&server), rest);
    server.with(|world| world.cut.push("p1".into()));
    let run = run_fake(&bench, FakeDriver::default()).await;
    let summary = &run.summary;
    assert_eq!(summary.failures, Vec::<String>::new());
    let code = if summary.generator.healthy { 0 } else { 110 };
    assert_eq!(summary.exit_code, code, "leaving is no failure, nor is a lost socket");
    let record = crate::judge::whole::read(&run.dir).expect("record");
    assert!(record.events.iter().any(|event| event.text == "socket resumed"));
    let table = crate::judge::summary::table(summary, &run.meta);
    assert!(table.contains("3 of 3 joined"), "{table}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_cannot_join_is_named_with_the_reason() {
    let server = FakeServer::start().await;
    server.with(|world| world.refuse.push("bot-2".into()));
    let bench = bench(&url(&server), "duration: 2s\nrooms: [{ people: { bot: 3 } }]\n");
    let driver = FakeDriver { mute_ice: vec!["bot-3".into()], ..FakeDriver::default() };
    let run = run_fake(&bench, driver).await;
    assert_eq!(run.summary.exit_code, failed(&run.summary).1);
    let failures = run.summary.failures.join("\n");
    assert!(failures.contains("bot-2 could not join: room_full: on purpose"), "{failures}");
    assert!(failures.contains("bot-3 could not connect: DTLS failed on purpose"), "{failures}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_run_has_a_full_report() {
    let server = FakeServer::start().await;
    let bench = bench(&url(&server), "duration: 1h\nrooms: [{ people: { bot: 2 } }]\n");
    let world = server.clone();
    let interrupt = async move {
        // Until the load has really begun.
        while world.with(|world| world.samples.len()) < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let driver = |_: &Server, _| Ok(FakeDriver::default());
    let run = run(&bench.options, driver, interrupt).await.expect("a run");
    // What a kill at this moment would have left.
    fs::remove_file(run.dir.join("summary.json")).expect("remove");
    assert_eq!(crate::render(&run.dir), 0);
    let record = crate::judge::whole::read(&run.dir).expect("record");
    assert_eq!((record.summary.people, record.summary.exit_code), (2, 105));
    assert_eq!((run.summary.verdict, run.summary.exit_code), (Verdict::Inconclusive, 105));
    assert!(run.summary.duration_s < 3600.0 && run.dir.join("report.html").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_bots_in_the_build_is_a_failure_in_words() {
    let server = FakeServer::start().await;
    let bench = bench(&url(&server), "duration: 1s\nrooms: [{ people: { bot: 2 } }]\n");
    let none = |_: &Server, _| Err::<FakeDriver, _>(BotError::new("not built in"));
    let run = run(&bench.options, none, std::future::pending()).await.expect("a run");
    assert_eq!((run.summary.people, run.summary.exit_code), (0, failed(&run.summary).1));
    assert_eq!(run.summary.failures, ["no bots: not built in"]);
}

#[test]
fn the_plan_numbers_people_over_all_rooms() {
    let text = "name: x\nserve: {}\nduration: 5s\nrooms:\n\
                - { count: 2, people: { bot: 2, chromium: 1 } }\n- { people: { bot: 1 } }\n";
    let scenario = Scenario::parse(text, "x").expect("valid");
    let plan = plan(&scenario, SystemTime::UNIX_EPOCH);
    let names: Vec<&str> = plan.iter().map(|planned| planned.name.as_str()).collect();
    let want = ["chromium-1", "bot-1", "bot-2", "chromium-2", "bot-3", "bot-4", "bot-5"];
    assert_eq!(names, want);
    let rooms: Vec<&str> = plan.iter().map(|planned| planned.place.room.as_str()).collect();
    assert_eq!((rooms[0], rooms[3], rooms[6]), ("x-1-000000", "x-2-000000", "x-3-000000"));
}

#[test]
fn browsers_without_cameras_send_no_picture_and_bots_still_do() {
    let plan_of = |canary: &str| {
        let text = format!(
            "name: x\nserve: {{}}\nduration: 5s\nrooms: [{{ people: {{ bot: 2, chromium: 1 }} }}]\n{canary}"
        );
        let scenario = Scenario::parse(&text, "x").expect("valid");
        let plan = plan(&scenario, SystemTime::UNIX_EPOCH);
        plan.iter().map(|planned| planned.place.sends_video).collect::<Vec<_>>()
    };
    assert_eq!(plan_of(""), [true, true, true]);
    assert_eq!(plan_of("canary: { camera: none }\n"), [false, true, true]);
}

#[test]
fn a_plan_gives_each_bot_its_role_and_the_speakers_their_turns() {
    let text = "name: x\nserve: {}\nduration: 5s\nrooms: [{ preset: audio_mix_with_cameras, \
                people: { bot: 10, chromium: 1 }, roles: [\
                { name: speaker, weight: 2, speaks_pct: 40 }, \
                { name: mute, weight: 1, video: false, speaks_pct: 0 }, \
                { name: listener, weight: 7, audio: false, video: false }] }]\n";
    let scenario = Scenario::parse(text, "x").expect("valid");
    let plan = plan(&scenario, SystemTime::UNIX_EPOCH);
    assert_eq!((&*plan[0].name, plan[0].place.voices), ("chromium-1", 2));
    let role = |planned: &Planned| planned.place.role.as_ref().map(|role| role.name.clone());
    let of = |name: &str| -> Vec<&Planned> {
        plan.iter().filter(|planned| role(planned).as_deref() == Some(name)).collect()
    };
    let sent = |planned: &&Planned| planned.place.media(scenario.media);
    let (speakers, mute, listeners) = (of("speaker"), of("mute"), of("listener"));
    assert_eq!((speakers.len(), mute.len(), listeners.len()), (2, 1, 7));
    let turns: Vec<_> = speakers.iter().filter_map(|planned| planned.place.turn).collect();
    assert_eq!(turns, [Turn { place: 0, of: 2 }, Turn { place: 1, of: 2 }]);
    assert!(speakers.iter().all(|planned| sent(planned) == scenario.media));
    assert!(speakers.iter().all(|planned| planned.place.voices == 2), "the other and the page");
    let silent = Media { audio: AudioSource::None, video: VideoSource::None };
    assert!(listeners.iter().all(|planned| sent(planned) == silent));
    assert!(listeners.iter().all(|planned| planned.place.voices == 3));
    assert_eq!(sent(&mute[0]), Media { video: VideoSource::None, ..scenario.media });
    assert_eq!(mute[0].place.turn, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_only_listens_is_measured_and_nobody_misses_what_he_does_not_send() {
    let server = FakeServer::start().await;
    let rest = "duration: 10s\njoin: { per_second: 50 }\nrooms: [{ people: { bot: 4 }, roles: [\
                { name: speaker, speaks_pct: 40 }, \
                { name: listener, weight: 3, audio: false, video: false }] }]\n";
    let bench = bench(&url(&server), rest);
    let run = run_fake(&bench, FakeDriver::default()).await;
    assert_eq!(run.summary.failures, Vec::<String>::new());
    assert_eq!(run.summary.subscriptions, 6, "three hear and see the one");
    let roles: Vec<_> = run.meta.people.iter().filter_map(|p| p.role.as_deref()).collect();
    assert_eq!(roles.iter().filter(|role| **role == "listener").count(), 3);
    let record = crate::judge::whole::read(&run.dir).expect("record");
    let listener = run.meta.people.iter().find(|p| p.role.as_deref() == Some("listener"));
    let name = &listener.expect("a listener").name;
    let samples = record.samples.iter().filter(|sample| sample.person == *name);
    assert!(samples.clone().count() >= 2);
    assert!(samples.clone().all(|sample| sample.sample.received.len() == 2));
}

#[test]
fn each_executor_has_its_own_way_of_coming() {
    let text = "name: x\nserve: {}\nduration: 60s\njoin: { per_second: 2 }\nrooms:\n\
                - { people: { bot: 2 } }\n\
                - { count: 2, ramping: { stages: [{ duration: 4s, people: 2 }] } }\n\
                - { people: { bot: 1 }, churn: { stay: 5s } }\n\
                - { arrival: { rate_per_second: 3, stay: 5s, max: 2 } }\n";
    let scenario = Scenario::parse(text, "x").expect("valid");
    let coming: Vec<Coming> =
        plan(&scenario, SystemTime::UNIX_EPOCH).into_iter().map(|planned| planned.coming).collect();
    let ms = Duration::from_millis;
    let stay = |from| Coming::Stays(vec![Stay { from: ms(from), until: None }]);
    let arrival = Arrival { per_second: 3.0, stay: ms(5000), max: 2 };
    let want = [
        Coming::At(ms(0)),
        Coming::At(ms(500)),
        stay(2000),
        stay(4000),
        Coming::Churn(ms(1000), ms(5000)),
        Coming::Arriving(3, arrival),
        Coming::Arriving(3, arrival),
    ];
    assert_eq!(coming, want);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_threshold_that_fails_may_end_the_run() {
    let server = FakeServer::start().await;
    let rest = "duration: 1h\njoin: { per_second: 0.5 }\nrooms: [{ people: { bot: 40 } }]\n\
                thresholds:\n  loss_pct: [{ threshold: \"max < 5\", abort_on_fail: true }]\n  \
                jitter_ms: [{ threshold: \"max < 5\", abort_on_fail: true }]\n  \
                rtt_ms: [\"p50 < 0.5\", { threshold: \"max < 1\", abortOnFail: true }]\n";
    let bench = bench(&url(&server), rest);
    let run = run_fake(&bench, FakeDriver::default()).await;
    let summary = &run.summary;
    let why = summary.aborted.as_ref().expect("ended early");
    assert!(why.contains("by abort_on_fail: rtt_ms max < 1 did not hold, it was 1.00"), "{why}");
    assert!(why.starts_with("ended at ") && summary.failures.contains(why));
    assert_eq!(summary.exit_code, failed(summary).1);
    assert!(summary.duration_s < 600.0 && run.dir.join("report.html").exists());
    assert!(run.meta.people.len() < 40, "who had not come yet is not missed");
    assert!(summary.checks.iter().all(|check| check.ok), "{:?}", summary.checks);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn some_may_leave_at_once_and_a_network_change() {
    let server = FakeServer::start().await;
    let rest = "duration: 9s\njoin: { per_second: 50 }\nrooms: [{ people: { bot: 5 } }]\n\
                networks: [{ name: far, delay: 1ms }]\nevents:\n\
                - { at: 2s, do: change_network, network: far, delay: 5ms }\n\
                - { at: 3s, do: leave, count: 3 }\n\
                - { at: 4s, do: leave, count: 5 }\n";
    let bench = bench(&url(&server), rest);
    let run = run_fake(&bench, FakeDriver::default()).await;
    let record = crate::judge::whole::read(&run.dir).expect("record");
    let count = |text: &str, until_ms: u64| {
        record.events.iter().filter(|e| e.text == text && e.t_ms < until_ms).count()
    };
    assert_eq!(count("the network far changes", 9_000), 1);
    assert_eq!((count("leaves", 3_900), count("leaves", 6_000)), (3, 5));
    let failures = &run.summary.failures;
    assert_eq!(failures[..], ["5 bots should leave, and 2 are there"]);
}

/// A stand-in for `moim serve` that answers /healthz, with nobody there to miss more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_ended_as_planned_is_named_so() {
    use std::os::unix::fs::PermissionsExt;
    for (what, told, status) in
        [("kill_server", "was killed at 1.", "signal: 9"), ("stop_server", "was stopped at 1.", "")]
    {
        let rest = format!(
            "duration: 1h\nrooms: [{{ ramping: {{ stages: [{{ duration: 1h, people: 1 }}] }} }}]\n\
             events: [{{ at: 1s, do: {what} }}]\n"
        );
        let mut bench = bench("http://127.0.0.1:1", "");
        let text = format!("name: x\nserve: {{ cpus: shared }}\n{rest}");
        fs::write(&bench.options.scenario, text).expect("write");
        let program = "const fs = require('fs'), http = require('http');
const port = +/127\\.0\\.0\\.1:([0-9]+)/.exec(fs.readFileSync(process.argv[2], 'utf8'))[1];
const answer = (_, to) => to.writeHead(200, { connection: 'close' }).end('ok');
http.createServer(answer).listen(port, '127.0.0.1');";
        fs::write(bench.dir.path().join("server.cjs"), program).expect("write");
        let exe = bench.dir.path().join("moim");
        let script = "#!/bin/sh\nexec node \"$(dirname \"$0\")/server.cjs\" \"$3\"\n";
        fs::write(&exe, script).expect("write");
        fs::set_permissions(&exe, fs::Permissions::from_mode(0o755)).expect("chmod");
        bench.options.server_exe = Some(exe);
        let run = run_fake(&bench, FakeDriver::default()).await;
        let failures = run.summary.failures.join("\n");
        assert!(failures.starts_with("the server ") && failures.contains(told), "{failures}");
        assert!(failures.contains("as planned (") && failures.contains(status), "{failures}");
        let code = failed(&run.summary).1;
        assert_eq!((run.summary.failures.len(), run.summary.exit_code), (1, code), "{failures}");
        assert!(run.summary.duration_s < 600.0 && run.dir.join("report.html").exists());
    }
}
