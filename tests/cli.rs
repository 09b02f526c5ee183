//! The command line: help that teaches, errors that name cause and cure, exit codes.

use std::process::{Command, Output};

fn moim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_moim")).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat()
}

fn file(directory: &tempfile::TempDir, name: &str, content: &str) -> String {
    let path = directory.path().join(name);
    std::fs::write(&path, content).unwrap();
    path.to_string_lossy().into_owned()
}

#[test]
fn help_names_every_command_and_its_exit_codes() {
    let help = text(&moim(&["--help"]));
    for command in ["serve", "load", "study", "capacity", "compare", "report"] {
        assert!(help.contains(command), "{help}");
    }
    let load = text(&moim(&["load", "--help"]));
    for code in ["99", "104", "105", "110", "111", "113"] {
        assert!(load.contains(code), "{code} in {load}");
    }
}

#[test]
fn a_capacity_needs_thresholds_and_a_number_that_the_scenario_can_have() {
    let directory = tempfile::tempdir().unwrap();
    let text_of = "name: x\nserve: {}\nduration: 5s\nrooms: [{ people: { bot: 2 } }]\n";
    let scenario = file(&directory, "x.yaml", text_of);
    let output = moim(&["capacity", &scenario]);
    assert_eq!(output.status.code(), Some(104), "{}", text(&output));
    assert!(text(&output).contains("thresholds: default"), "{}", text(&output));
    let scenario = file(&directory, "y.yaml", &format!("{text_of}thresholds: default\n"));
    let output = moim(&["capacity", &scenario, "--vary", "rate"]);
    assert_eq!(output.status.code(), Some(104), "{}", text(&output));
    assert!(text(&output).contains("no sockets"), "{}", text(&output));
    assert!(text(&moim(&["capacity", "--help"])).contains("110"));
}

#[test]
fn what_cannot_be_compared_is_told() {
    let output = moim(&["compare", "/nowhere"]);
    assert_eq!(output.status.code(), Some(2), "two at least: {}", text(&output));
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().to_string_lossy();
    let output = moim(&["compare", &empty, &empty]);
    assert_eq!(output.status.code(), Some(104), "{}", text(&output));
    assert!(text(&output).contains("neither the record of a run"), "{}", text(&output));
    assert!(text(&moim(&["compare", "--help"])).contains("112"));
}

#[test]
fn faults_are_refused_outside_development_mode() {
    let directory = tempfile::tempdir().unwrap();
    let config =
        file(&directory, "moim.yaml", "http: { bind: \"127.0.0.1:0\" }\nmedia: { port: 0 }\n");
    let output = moim(&["serve", "--config", &config, "--fault", "hot_thread=40us"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("without --config"), "{said}");
    assert!(said.contains("--for-tests"), "{said}");
    let output = moim(&["serve", "--for-tests", "--fault", "hot_thread=40us"]);
    assert_eq!(output.status.code(), Some(2), "for settings: {}", text(&output));
    let output = moim(&["serve", "--fault", "hot_thread"]);
    assert_eq!(output.status.code(), Some(104), "{}", text(&output));
    assert!(text(&output).contains("receive_buffer=4096"), "{}", text(&output));
}

#[test]
fn a_broken_config_tells_all_errors_at_once_and_exits_with_104() {
    let directory = tempfile::tempdir().unwrap();
    let config = "htpp: { bind: \"127.0.0.1:1\" }\nmedia:\n  port: ninety\n  shards: 0\n";
    let output = moim(&["serve", "--config", &file(&directory, "moim.yaml", config)]);
    let text = text(&output);
    assert_eq!(output.status.code(), Some(104), "{text}");
    assert!(text.contains("moim.yaml:1") && text.contains("\"http\""), "nearest key: {text}");
    assert!(text.contains("moim.yaml:3") && text.contains("media.port"), "{text}");
    assert!(text.contains("moim.yaml:4") && text.contains("media.shards"), "{text}");
}

#[test]
fn a_broken_scenario_tells_all_errors_at_once_and_exits_with_104() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = "name: bad\nserve: {}\nduration: soon\nrooms:\n  - { count: 1, audoi: sfu, people: { bot: 2 } }\n";
    let path = file(&directory, "bad.yaml", scenario);
    for arguments in [vec!["load", &path], vec!["load", &path, "--check"]] {
        let output = moim(&arguments);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(104), "{text}");
        assert!(text.contains("bad.yaml:3") && text.contains("duration"), "{text}");
        assert!(text.contains("bad.yaml:5") && text.contains("\"audio\""), "nearest key: {text}");
    }
}

#[test]
fn a_target_that_is_not_there_exits_with_111() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = "name: nobody\ntarget: { adapter: moim, url: \"http://127.0.0.1:9\" }\nduration: 10s\nrooms: [{ count: 1, audio: sfu, video: sfu, people: { bot: 2 } }]\n";
    let path = file(&directory, "nobody.yaml", scenario);
    let runs = directory.path().join("runs");
    let output = moim(&["load", &path, "--runs", &runs.to_string_lossy()]);
    let text = text(&output);
    assert_eq!(output.status.code(), Some(111), "{text}");
    assert!(text.contains("127.0.0.1:9"), "{text}");
}

#[test]
fn a_port_in_use_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (http, media) = (listener.local_addr().unwrap(), socket.local_addr().unwrap());
    let config = format!("http: {{ bind: \"{http}\" }}\nmedia: {{ port: 0 }}\n");
    let output = moim(&["serve", "--config", &file(&directory, "http.yaml", &config)]);
    assert!(!output.status.success());
    assert!(text(&output).contains(&http.to_string()), "{}", text(&output));
    let config =
        format!("http: {{ bind: \"127.0.0.1:0\" }}\nmedia: {{ port: {} }}\n", media.port());
    let output = moim(&["serve", "--config", &file(&directory, "media.yaml", &config)]);
    assert!(!output.status.success());
    assert!(text(&output).contains(&media.to_string()), "{}", text(&output));
    assert!(text(&output).contains("another process"), "{}", text(&output));
}

/// Whoever reads the output has enough at once, as `head` may have.
fn unread(arguments: &[&str]) -> Option<i32> {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_moim"));
    command.args(arguments).env("MOIM_SECRET", "0123456789abcdef0123456789abcdef");
    command.stdout(writer.try_clone().unwrap()).stderr(writer).status().unwrap().code()
}

#[test]
fn output_that_nobody_reads_changes_no_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = |duration: &str, threshold: &str| {
        let sockets = "[{ connections: 2, arrival_per_second: 20, rate_per_second: 10 }]";
        let text = format!(
            "name: pings\nserve: {{}}\nduration: {duration}\nsockets: {sockets}\nthresholds:\n  pong_ms: [\"{threshold}\"]\n"
        );
        file(&directory, "pings.yaml", &text)
    };
    let runs = directory.path().join("runs");
    let load = |path: &str| unread(&["load", path, "--runs", &runs.to_string_lossy()]);
    assert_eq!(load("/nowhere.yaml"), Some(104));
    assert_eq!(load(&scenario("nothing", "max < 1")), Some(104));
    // 110: a busy machine's generator may have been late.
    assert!(matches!(load(&scenario("3s", "max < 60000")), Some(0 | 110)));
    assert!(matches!(load(&scenario("3s", "max < 0.0001")), Some(99 | 110)));
    let run = std::fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
    for format in ["html", "csv", "junit", "prometheus", "markdown"] {
        let code = unread(&["report", &run.to_string_lossy(), "--format", format]);
        assert_eq!(code, Some(0), "{format}");
    }
    let token =
        ["token", "--key", "app", "--identity", "ada", "--room", "a", "--link", "https://a.test"];
    for (arguments, code) in [
        (&["--help"][..], 0),
        (&["load", "--schema"], 0),
        (&["load", "--check", &scenario("3s", "max < 1")], 0),
        (&["doctor"], 0),
        (&token, 0),
        (&["compare", "/nowhere", "/nowhere"], 104),
        (&["capacity", "/nowhere.yaml"], 104),
        (&["serve", "--config", "/nowhere.yaml"], 104),
    ] {
        assert_eq!(unread(arguments), Some(code), "{arguments:?}");
    }
}

/// Runs 20 sockets that ping, with these thresholds, against a server of the lab's own; the summary and what was said.
fn run_sockets(duration: &str, thresholds: &str) -> (Output, serde_json::Value) {
    let directory = tempfile::tempdir().unwrap();
    let sockets = "[{ connections: 20, arrival_per_second: 20, rate_per_second: 10 }]";
    let scenario = format!(
        "name: pings\nserve: {{}}\nduration: {duration}\nsockets: {sockets}\nthresholds:\n{thresholds}"
    );
    let path = file(&directory, "pings.yaml", &scenario);
    let runs = directory.path().join("runs");
    let output = moim(&["load", &path, "--runs", &runs.to_string_lossy()]);
    let record = std::fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
    let summary = std::fs::read(record.join("summary.json")).unwrap();
    (output, serde_json::from_slice(&summary).unwrap())
}

#[test]
fn thresholds_on_sockets_pass_and_fail_and_end_a_run() {
    let (output, summary) = run_sockets(
        "13s",
        "  pong_ms: [\"max < 60000\", { threshold: \"n > 20\", from: 2s }]\n  answered_pct: [\"user_p1 >= 99\", \"n == 20\"]\n  \
         connect_ms: [\"n == 20\"]\n  lost: [\"max == 0\", \"n == 20\"]\n",
    );
    let said = text(&output);
    for result in summary["thresholds"].as_array().unwrap() {
        assert_eq!(result["ok"], true, "{result}\n{said}");
    }
    // A busy machine's generator may have been late.
    assert!(matches!(output.status.code(), Some(0 | 110)), "{said}");
    assert_eq!(summary["metrics"]["connect_ms"]["n"], 20, "{said}");
    assert!(
        said.contains("20 of 20 live, 0 lost") && said.contains("messages/s answered"),
        "{said}"
    );

    let (output, summary) = run_sockets(
        "120s",
        "  pong_ms: [{ threshold: \"max < 0.0001\", abort_on_fail: true }]\n  lost: [\"max > 0\"]\n",
    );
    let said = text(&output);
    assert!(matches!(output.status.code(), Some(99 | 110)), "{said}");
    assert!(summary["duration_s"].as_f64().unwrap() < 100.0, "{said}");
    assert!(summary["aborted"].as_str().unwrap().contains("pong_ms max < 0.0001"), "{said}");
    for result in summary["thresholds"].as_array().unwrap() {
        assert_eq!(result["ok"], false, "{result}\n{said}");
        assert!(result["value"].is_number(), "{result}\n{said}");
    }
}
