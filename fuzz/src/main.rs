//! One binary for all fuzz targets: MOIM_FUZZ names the one that runs (`scripts/evidence-fuzz.sh`).
#![no_main]

// How many inputs a bounded run takes concerns tests/fuzz.rs alone.
#[allow(dead_code)]
mod harness;

use harness::{TARGETS, Target};
use libfuzzer_sys::Corpus;
use std::sync::LazyLock;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    // The library's hook ends the process at every panic, also at those that `transport` catches. What reaches the library
    // ends it all the same.
    drop(std::panic::take_hook());
    let name = std::env::var("MOIM_FUZZ").unwrap_or_default();
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| {
        eprintln!("MOIM_FUZZ={name:?} is no target; write one of {}", names.join(", "));
        std::process::exit(2)
    })
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| -> Corpus {
    if data.len() > TARGET.max_len {
        return Corpus::Reject;
    }
    (TARGET.run)(data);
    Corpus::Keep
});
