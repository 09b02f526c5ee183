//! Puts the pages where `assets.rs` embeds them from: the built ones of `web/app/dist` and
//! `web/console/dist`, or a page that says how to build them, so that the server builds without
//! Node.js.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

const FALLBACK: &str = include_str!("src/fallback.html");

/// Each page's folder under `web` and the file that it begins with.
const PAGES: [(&str, &str); 2] = [("app", "index.html"), ("console", "console.html")];

fn main() -> io::Result<()> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let target = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo")).join("app");
    if target.exists() {
        fs::remove_dir_all(&target)?;
    }
    fs::create_dir_all(&target)?;
    let web = manifest.join("../../web");
    println!("cargo::rerun-if-changed=src/fallback.html");
    for (folder, entry) in PAGES {
        let dist = web.join(folder).join("dist");
        if dist.join(entry).is_file() {
            copy(&dist, &target)?;
        } else {
            fs::write(target.join(entry), FALLBACK)?;
        }
        // A path that does not exist would make every build run this again: watch what there is.
        let places = [dist, web.join(folder), web.clone()];
        if let Some(watched) = places.iter().find(|path| path.exists()) {
            println!("cargo::rerun-if-changed={}", watched.display());
        }
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
