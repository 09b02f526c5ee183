//! The house keeps its walls: which crate may import which, which file of a crate which other, and who may look at a
//! clock.

mod files;

use files::Files;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crate → what of ours it may import, as in ARCHITECTURE.md.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("settings", &[]),
    ("rtp", &[]),
    ("net", &[]),
    ("audio", &[]),
    ("bwe", &["rtp"]),
    ("transport", &["rtp"]),
    ("engine", &["rtp", "audio", "bwe"]),
    ("server", &["engine", "transport", "rtp", "net", "wire", "settings"]),
    ("lab", &["transport", "rtp", "net", "audio", "bwe", "wire", "settings"]),
    ("moim", &["server", "lab"]),
];

/// Crate → what of others it may import directly; all else is not for it.
const THIRD_PARTY: &[(&str, &[&str])] = &[
    ("wire", &["serde"]),
    ("rtp", &["aws-lc-rs", "crc"]),
    ("bwe", &["goog_cc"]),
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
const SANS_IO: &[&str] = &["wire", "rtp", "audio", "bwe", "transport", "engine"];

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

/// Files that may still lie on a circle, by crate: these lists only get shorter.
const CIRCLES: &[(&str, &[&str])] = &[
    ("wire", &["event.rs", "room.rs"]),
    ("settings", &["schema.rs", "section.rs", "shape.rs"]),
    ("rtp", &["srtp/cipher.rs", "srtp/keys.rs"]),
    (
        "server",
        &[
            "access.rs",
            "api.rs",
            "api/rooms.rs",
            "auth.rs",
            "auth/revocations.rs",
            "auth/token.rs",
            "config.rs",
            "control.rs",
            "http.rs",
            "lane.rs",
            "media.rs",
            "rooms/calls.rs",
            "rooms/decisions.rs",
            "rooms/mod.rs",
            "rooms/moderation.rs",
            "rooms/notices.rs",
            "rooms/offers.rs",
            "rooms/quality.rs",
            "socket/calls.rs",
            "socket/hub.rs",
            "socket/mod.rs",
            "socket/session.rs",
        ],
    ),
];

/// Types whose methods may still stand in several files, by crate: these lists only get shorter.
const SPLIT: &[(&str, &[&str])] = &[(
    "server",
    &[
        "rooms/calls.rs implements Cell of rooms/mod.rs",
        "rooms/calls.rs implements Rooms of rooms/mod.rs",
        "rooms/desk.rs implements Cell of rooms/mod.rs",
        "rooms/desk.rs implements Rooms of rooms/mod.rs",
        "rooms/inbox.rs implements Rooms of rooms/mod.rs",
        "rooms/mesh.rs implements Rooms of rooms/mod.rs",
        "rooms/moderation.rs implements Cell of rooms/mod.rs",
        "rooms/moderation.rs implements Rooms of rooms/mod.rs",
        "rooms/notices.rs implements Cell of rooms/mod.rs",
        "rooms/quality.rs implements Cell of rooms/mod.rs",
        "rooms/quality.rs implements Rooms of rooms/mod.rs",
        "socket/builtin.rs implements Session of socket/session.rs",
        "socket/builtin.rs implements Socket of socket/mod.rs",
        "socket/calls.rs implements Socket of socket/mod.rs",
    ],
)];

/// Floor of the lab → the floors that it may use, as in ARCHITECTURE.md. A floor is a directory or a file of `src`;
/// `lib.rs` stands above all.
const FLOORS: &[(&str, &[&str])] = &[
    ("record", &[]),
    ("base", &[]),
    ("observe", &["record", "base"]),
    ("clients", &["record", "base", "observe"]),
    ("judge", &["record", "base", "observe"]),
    ("report", &["record", "base", "observe", "judge"]),
    ("scenario", &["record", "base", "observe", "clients", "judge"]),
    ("people", &["record", "base", "observe", "clients", "judge", "scenario"]),
    ("progress", &["record", "base", "observe", "judge", "scenario", "people"]),
    (
        "run",
        &[
            "record", "base", "observe", "clients", "judge", "report", "scenario", "people",
            "progress",
        ],
    ),
    ("study", &["record", "base", "observe", "clients", "judge", "report", "scenario", "run"]),
    ("capacity", &["record", "base", "observe", "judge", "report", "scenario", "run"]),
    ("compare", &["record", "base", "observe", "judge", "report", "scenario"]),
    ("matrix", &["record", "base", "observe", "judge", "report", "scenario", "run"]),
    ("doctor", &["observe"]),
];

/// Arrows between files that lead to a floor that must not be used.
fn upwards(files: &Files) -> Vec<String> {
    let floor = |file: &str| file.split(['/', '.']).next().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for (from, to, path) in files.all() {
        let (own, other) = (floor(from), floor(to));
        if own == other || own == "lib" {
            continue;
        }
        let may = FLOORS.iter().find(|(name, _)| *name == own).map(|(_, list)| *list);
        match may {
            None => found.push(format!("{from} stands on no floor")),
            Some(list) if list.contains(&other.as_str()) => {}
            Some(_) => found.push(format!("{from} must not use {to} ({path})")),
        }
    }
    found
}

#[test]
fn floors_of_the_lab_use_those_below_alone() {
    assert_eq!(upwards(&Files::of(&texts("lab"))), Vec::<String>::new());
}

#[test]
fn a_floor_that_uses_one_above_is_found() {
    let root = ("lib.rs", "mod record; mod judge; mod attic; fn f() { judge::g() }");
    let judge = ("judge/mod.rs", "use crate::record::Row; pub fn g() {}");
    let (_, files) = arrows(&[root, judge, ("record.rs", "pub struct Row;"), ("attic.rs", "")]);
    assert_eq!(upwards(&files), Vec::<String>::new());
    let record = ("record.rs", "pub struct Row; fn f() { crate::judge::g() }");
    let attic = ("attic.rs", "use super::record::Row;");
    let (_, files) = arrows(&[root, judge, record, attic]);
    let found =
        ["attic.rs stands on no floor", "record.rs must not use judge/mod.rs (crate::judge::g)"];
    assert_eq!(upwards(&files), found);
}

/// The sources of a crate's `src`, by their names there.
fn texts(name: &str) -> BTreeMap<String, String> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let src =
        if name == "moim" { top.join("src") } else { top.join("crates").join(name).join("src") };
    let mut files = Vec::new();
    sources(&src, &mut files);
    let named = |file: &PathBuf| file.strip_prefix(&src).unwrap().to_str().unwrap().to_owned();
    files.iter().map(|file| (named(file), std::fs::read_to_string(file).unwrap())).collect()
}

/// What is found and not allowed, and what is allowed and not found any more.
fn against(list: &[(&str, &[&str])], name: &str, found: &BTreeSet<&str>) -> Vec<String> {
    let entry = list.iter().find(|(of, _)| *of == name);
    let allowed: BTreeSet<&str> = entry.iter().flat_map(|(_, list)| list.iter().copied()).collect();
    let new = found.difference(&allowed).map(|what| format!("{name}: {what} is not allowed"));
    let gone =
        allowed.difference(found).map(|what| format!("{name}: {what} needs no entry any more"));
    new.chain(gone).collect()
}

#[test]
fn files_use_each_other_in_no_circle() {
    for (name, _) in MAY_IMPORT {
        let files = Files::of(&texts(name));
        let wrong = against(CIRCLES, name, &files.circles());
        assert!(wrong.is_empty(), "{wrong:#?}\narrows: {:#?}", files.on_circles());
    }
}

#[test]
fn a_types_methods_stand_in_its_own_file() {
    for (name, _) in MAY_IMPORT {
        let files = Files::of(&texts(name));
        let wrong = against(SPLIT, name, &files.split.iter().map(String::as_str).collect());
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

/// The arrows of an invented crate, as `a → b`.
fn arrows(sources: &[(&str, &str)]) -> (Vec<String>, Files) {
    let texts =
        sources.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let files = Files::of(&texts);
    let pair = |(from, to): (&String, &String)| format!("{from} → {to}");
    let all = files.arrows.iter().flat_map(|(from, to)| to.keys().map(move |to| (from, to)));
    (all.map(pair).collect(), files)
}

#[test]
fn a_facade_makes_no_circle_and_hides_none() {
    let leaf = ("a/leaf.rs", "use crate::a::Other; pub struct Leaf(Other);");
    let root = ("lib.rs", "mod a;");
    // What the parent only passes on is no arrow of its own.
    let facade = ("a/mod.rs", "mod leaf; mod other; pub use leaf::Leaf; pub use other::Other;");
    let (found, files) = arrows(&[root, leaf, facade, ("a/other.rs", "pub struct Other;")]);
    assert_eq!(found, ["a/leaf.rs → a/other.rs"]);
    assert!(files.circles().is_empty());
    // The same through the facade, and back.
    let back = ("a/other.rs", "pub struct Other; fn of() { let _ = super::Leaf::new(); }");
    let (found, files) = arrows(&[root, leaf, facade, back]);
    assert_eq!(found, ["a/leaf.rs → a/other.rs", "a/other.rs → a/leaf.rs"]);
    assert_eq!(files.circles(), BTreeSet::from(["a/leaf.rs", "a/other.rs"]));
}

#[test]
fn a_parent_and_a_child_that_use_each_other_are_a_circle() {
    let root = ("lib.rs", "mod a;");
    let child = ("a/child.rs", "use super::{Shared, self as parent}; pub struct Child(Shared);");
    let parent = "mod child; pub use child::Child; pub struct Shared;";
    let (found, files) = arrows(&[root, ("a.rs", parent), child]);
    assert_eq!(found, ["a/child.rs → a.rs"], "an item of the parent's own file");
    assert!(files.circles().is_empty());
    let uses = format!("{parent} pub fn of(child: &Child) {{}}");
    let (_, files) = arrows(&[root, ("a.rs", &uses), child]);
    assert_eq!(files.circles(), BTreeSet::from(["a.rs", "a/child.rs"]));
    let calls = "mod child; pub struct Shared; fn f() -> u8 { vec![child::Child::count()] }";
    let (_, files) = arrows(&[root, ("a.rs", calls), child]);
    assert_eq!(files.circles(), BTreeSet::from(["a.rs", "a/child.rs"]), "in a macro, too");
}

#[test]
fn paths_are_followed_through_names_and_not_through_tests_and_texts() {
    let root = ("lib.rs", "mod a; mod b; mod c; pub use c::far;");
    let a = "use crate::{b as near, far as away}; fn f() { near::go(); away::deep::call(); }";
    let b = "// crate::a::f()\npub fn go() { \"crate::a::f()\"; }
             #[cfg(test)] mod tests { use crate::a::f; } #[cfg(test)] use crate::{a::f, c};";
    let c = "pub mod far { pub mod deep { pub fn call() { super::super::here() } } } fn here() {}";
    let (found, files) = arrows(&[root, ("a.rs", a), ("b.rs", b), ("c.rs", c)]);
    assert_eq!(found, ["a.rs → b.rs", "a.rs → c.rs"]);
    assert!(files.split.is_empty());
    let split = "use crate::c::There; impl<T: Copy> There<T> { fn more(&self) {} } impl Clone for There<u8> {}";
    let (_, files) = arrows(&[
        root,
        ("a.rs", split),
        ("b.rs", ""),
        ("c.rs", "pub mod far {} pub struct There;"),
    ]);
    assert_eq!(files.split, BTreeSet::from(["a.rs implements There of c.rs".to_owned()]));
}

#[test]
fn an_entry_that_is_not_needed_any_more_is_told() {
    let list: &[(&str, &[&str])] = &[("x", &["a.rs", "b.rs"])];
    let told = against(list, "x", &BTreeSet::from(["b.rs", "c.rs"]));
    assert_eq!(told, ["x: c.rs is not allowed", "x: a.rs needs no entry any more"]);
    assert_eq!(against(list, "y", &BTreeSet::from(["b.rs"])), ["y: b.rs is not allowed"]);
}
