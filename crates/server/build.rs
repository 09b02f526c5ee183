//! Puts the call page where `assets.rs` embeds it from: the built one of `web/app/dist`, or a
//! page that says how to build it, so that the server builds without Node.js.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

const FALLBACK: &str = include_str!("src/fallback.html");

fn main() -> io::Result<()> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let target = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo")).join("app");
    if target.exists() {
        fs::remove_dir_all(&target)?;
    }
    fs::create_dir_all(&target)?;
    let web = manifest.join("../../web");
    let dist = web.join("app/dist");
    if dist.join("index.html").is_file() {
        copy(&dist, &target)?;
    } else {
        fs::write(target.join("index.html"), FALLBACK)?;
    }
    println!("cargo::rerun-if-changed=src/fallback.html");
    // A path that does not exist would make every build run this again: watch what there is.
    if let Some(watched) = [dist, web.join("app"), web].iter().find(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", watched.display());
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
