//! The house keeps its walls: who may import whom, and who may look at a clock.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crate → what of ours it may import, as in ARCHITECTURE.md.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("settings", &[]),
    ("rtp", &[]),
    ("net", &[]),
    ("audio", &[]),
    ("transport", &["rtp"]),
    ("engine", &["rtp", "audio"]),
    ("server", &["engine", "transport", "rtp", "net", "wire", "settings"]),
    ("lab", &["transport", "rtp", "net", "audio", "wire", "settings"]),
    ("moim", &["server", "lab"]),
];

/// Crate → what of others it may import directly; all else is not for it.
const THIRD_PARTY: &[(&str, &[&str])] = &[
    ("wire", &["serde"]),
    ("rtp", &["aws-lc-rs", "crc"]),
    ("net", &["libc"]),
    ("audio", &["opusic-sys"]),
    ("transport", &["str0m", "dimpl"]),
    ("engine", &["foldhash"]),
];

/// Normal and build dependencies of each of our crates.
type Graph = BTreeMap<String, Vec<String>>;

fn graph() -> Graph {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap();
            let names = dependencies
                .iter()
                .filter(|dependency| dependency["kind"] != "dev")
                .map(|dependency| dependency["name"].as_str().unwrap().to_owned());
            (package["name"].as_str().unwrap().to_owned(), names.collect())
        })
        .collect()
}

fn violations(graph: &Graph) -> Vec<String> {
    let allowed = |table: &[(&str, &'static [&str])], name: &str| {
        table.iter().find(|(known, _)| *known == name).map(|(_, list)| *list)
    };
    let mut found = Vec::new();
    for (name, dependencies) in graph {
        let Some(ours) = allowed(MAY_IMPORT, name) else {
            found.push(format!("{name} has no place in the house"));
            continue;
        };
        for dependency in dependencies {
            let own = MAY_IMPORT.iter().any(|(known, _)| known == dependency);
            let fine = if own {
                ours.contains(&dependency.as_str())
            } else {
                allowed(THIRD_PARTY, name).is_none_or(|list| list.contains(&dependency.as_str()))
            };
            if !fine {
                found.push(format!("{name} must not import {dependency}"));
            }
        }
    }
    found
}

#[test]
fn arrows_point_down_only() {
    assert_eq!(violations(&graph()), Vec::<String>::new());
}

#[test]
fn a_reversed_arrow_is_found() {
    for (from, to) in [("engine", "server"), ("server", "lab"), ("engine", "str0m")] {
        let mut graph = graph();
        graph.get_mut(from).unwrap().push(to.to_owned());
        assert_eq!(violations(&graph), [format!("{from} must not import {to}")]);
    }
}

#[test]
fn the_engine_knows_no_runtime_no_str0m_and_no_json() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "-p", "engine", "-e", "normal,build", "--prefix", "none", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    assert!(tree.contains("aws-lc-rs"), "the tree is there: {tree}");
    for banned in ["tokio", "str0m", "serde_json", "serde "] {
        assert!(!tree.lines().any(|line| line.starts_with(banned)), "{banned} in\n{tree}");
    }
}

/// Crates that never read a clock, open a socket, sleep or touch a file.
const SANS_IO: &[&str] = &["wire", "rtp", "audio", "transport", "engine"];

const FORBIDDEN: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "UNIX_EPOCH",
    "UdpSocket",
    "TcpStream",
    "TcpListener",
    "UnixStream",
    "std::fs",
    "File::open",
    "thread::sleep",
    "tokio::",
];

/// Calls that a sans-IO source must not make; its unit tests may.
fn forbidden_calls(source: &str) -> Vec<&'static str> {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: String = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| [line, "\n"])
        .collect();
    FORBIDDEN.iter().copied().filter(|call| code.contains(call)).collect()
}

fn sources(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, into);
        } else if name.ends_with(".rs") && name != "tests.rs" && name != "testing.rs" {
            into.push(path);
        }
    }
}

#[test]
fn no_clock_and_no_socket_in_the_sans_io_crates() {
    let mut files = Vec::new();
    for name in SANS_IO {
        sources(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("crates").join(name).join("src"),
            &mut files,
        );
    }
    assert!(files.len() > 30, "{} files", files.len());
    for file in files {
        let calls = forbidden_calls(&std::fs::read_to_string(&file).unwrap());
        assert!(calls.is_empty(), "{} calls {calls:?}", file.display());
    }
}

#[test]
fn the_scan_finds_what_it_looks_for() {
    let bad = "fn now() -> Instant { Instant::now() }\nuse std::net::UdpSocket;";
    assert_eq!(forbidden_calls(bad), ["Instant::now", "UdpSocket"]);
    let fine = "// Instant::now() is not for us\n#[cfg(test)]\nmod tests {\n Instant::now() }";
    assert_eq!(forbidden_calls(fine), Vec::<&str>::new());
}
