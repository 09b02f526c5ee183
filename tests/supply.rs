//! What others wrote and we ship: from one registry each, under licenses that allow it, no crate of ours in two versions. It
//! needs no network. Known faults of it are not looked up here: their lists change daily (`scripts/test.sh` asks for them).

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Licenses that Apache-2.0 code may be linked with.
const LICENSES: &[&str] = &[
    "Apache-2.0",
    "MIT",
    "MIT-0",
    "0BSD",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
];
/// Crates that name no license, and what their license file says.
const READ_LICENSES: &[(&str, &str)] = &[("goog_cc", "BSD-3-Clause")];
/// Licenses of tools that build the pages and are no part of them.
const TOOL_LICENSES: &[&str] = &["MPL-2.0"];
/// Crates that must not come in, whoever brings them: one library does TLS, and it is not the system's.
const BANNED: &[&str] = &["openssl-sys", "native-tls"];

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Whether a license expression (SPDX, or the old form with a slash) can be satisfied by the allowed ones: each of its
/// parts that are joined by AND has an alternative that can.
fn allowed(expression: &str, licenses: &[&str]) -> bool {
    let expression = expression.replace('/', " OR ");
    expression.split(" AND ").all(|part| {
        let alternatives = part.trim_matches(['(', ')', ' ']);
        alternatives.split(" OR ").any(|license| licenses.contains(&license.trim()))
    })
}

fn packages() -> Vec<Value> {
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version=1",
            "--offline",
            "--locked",
            "--filter-platform",
            &host,
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    match metadata["packages"].take() {
        Value::Array(packages) => packages,
        other => panic!("no packages: {other}"),
    }
}

fn faults(packages: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut direct: BTreeSet<&str> = BTreeSet::new();
    for package in packages {
        let name = package["name"].as_str().unwrap();
        versions.entry(name).or_default().insert(package["version"].as_str().unwrap());
        let read = READ_LICENSES.iter().find(|(known, _)| *known == name).map(|(_, read)| *read);
        let license = package["license"].as_str().or(read).unwrap_or("no license");
        if !allowed(license, LICENSES) {
            found.push(format!("{name}: {license} is not among the licenses allowed"));
        }
        if BANNED.contains(&name) {
            found.push(format!("{name} is banned"));
        }
        match package["source"].as_str() {
            None => direct.extend(
                package["dependencies"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter_map(|d| d["name"].as_str()),
            ),
            Some(CRATES_IO) => {}
            Some(other) => found.push(format!("{name} comes from {other}")),
        }
    }
    for (name, versions) in versions.iter().filter(|(name, _)| direct.contains(*name)) {
        if versions.len() > 1 {
            found.push(format!("{name} is there as {versions:?}"));
        }
    }
    found
}

#[test]
fn crates_come_from_one_registry_under_known_licenses_and_once() {
    let packages = packages();
    assert!(packages.len() > 200, "{} packages", packages.len());
    assert_eq!(faults(&packages), Vec::<String>::new());
}

#[test]
fn a_crate_that_breaks_a_rule_is_found() {
    let package = |name: &str, version: &str, license: &str, source: Option<&str>| {
        serde_json::json!({
            "name": name, "version": version, "license": license, "source": source,
            "dependencies": if source.is_none() { vec![serde_json::json!({ "name": "twice" })] } else { vec![] },
        })
    };
    let packages = [
        package("ours", "0.1.0", "Apache-2.0", None),
        package("copyleft", "1.0.0", "MIT AND GPL-3.0-only", Some(CRATES_IO)),
        package("fork", "1.0.0", "MIT", Some("git+https://example.org/fork")),
        package("native-tls", "1.0.0", "MIT/Apache-2.0", Some(CRATES_IO)),
        package("twice", "1.0.0", "MIT", Some(CRATES_IO)),
        package("twice", "2.0.0", "(GPL-3.0-only OR MIT) AND ISC", Some(CRATES_IO)),
    ];
    let found = faults(&packages).join("\n");
    for name in [
        "copyleft: MIT AND GPL-3.0-only",
        "fork comes from",
        "native-tls is banned",
        "twice is there as",
    ] {
        assert!(found.contains(name), "{name} in\n{found}");
    }
    assert_eq!(found.lines().count(), 4, "{found}");
}

/// The fuzz targets are a workspace of their own: the same crates in the same versions, or something else is fuzzed.
#[test]
fn the_fuzz_targets_run_what_is_shipped() {
    let locked = |path: &str| -> BTreeSet<String> {
        let text =
            std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        let entries = text.split("[[package]]").skip(1);
        entries.map(|entry| entry.lines().skip(1).take(2).collect::<Vec<_>>().join(" ")).collect()
    };
    let of_name = |entry: &str, name: &str| entry.starts_with(&format!("name = {name:?} "));
    let (shipped, fuzzed) = (locked("Cargo.lock"), locked("fuzz/Cargo.lock"));
    for name in ["str0m", "dimpl", "aws-lc-rs", "serde_json", "saphyr-parser", "axum"] {
        let version =
            |all: &BTreeSet<String>| all.iter().find(|entry| of_name(entry, name)).cloned();
        assert!(version(&shipped).is_some(), "{name}");
        assert_eq!(
            version(&fuzzed),
            version(&shipped),
            "cp Cargo.lock fuzz/, then cargo metadata there"
        );
    }
}

/// Without that the fuzz targets are not built with `--locked`.
#[test]
fn the_lock_of_the_fuzz_targets_is_whole() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lock = std::fs::read_to_string(root.join("fuzz/Cargo.lock")).unwrap();
    for entry in std::fs::read_dir(root.join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let own = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Some(locked) =
            lock.split("[[package]]").find(|it| it.contains(&format!("\nname = \"{own}\"\n")))
        else {
            continue;
        };
        let manifest = std::fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let (_, rest) = manifest.split_once("[dependencies]\n").unwrap_or_default();
        let lines = rest.lines().take_while(|line| !line.starts_with('['));
        let named = lines.filter_map(|line| line.split(['.', ' ', '=']).next());
        for name in named.filter(|name| !name.is_empty() && !name.starts_with('#')) {
            let there =
                locked.contains(&format!("\"{name}\"")) || locked.contains(&format!("\"{name} "));
            assert!(
                there,
                "{own} needs {name}: run cargo metadata --manifest-path fuzz/Cargo.toml"
            );
        }
    }
}

#[test]
fn packages_of_the_pages_are_whole_and_under_known_licenses() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("web/package-lock.json");
    let lock: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let packages = lock["packages"].as_object().unwrap();
    let others = packages.iter().filter(|(path, package)| {
        path.starts_with("node_modules/") && package["link"] != Value::Bool(true)
    });
    let mut count = 0;
    for (path, package) in others {
        count += 1;
        let license = package["license"].as_str().unwrap_or("no license");
        let tool = package["dev"] == Value::Bool(true) && allowed(license, TOOL_LICENSES);
        assert!(allowed(license, LICENSES) || tool, "{path}: {license}");
        assert!(package["integrity"].is_string(), "{path} has no checksum");
        let from = package["resolved"].as_str().unwrap_or("https://registry.npmjs.org/");
        assert!(from.starts_with("https://registry.npmjs.org/"), "{path} comes from {from}");
    }
    assert!(count > 50, "{count} packages");
}
