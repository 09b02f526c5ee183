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
    for command in ["serve", "load", "report"] {
        assert!(help.contains(command), "{help}");
    }
    let load = text(&moim(&["load", "--help"]));
    for code in ["99", "104", "105", "110", "111", "113"] {
        assert!(load.contains(code), "{code} in {load}");
    }
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
