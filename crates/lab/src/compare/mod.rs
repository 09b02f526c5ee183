//! `moim compare`: records of one scenario side by side, such as of two builds, two servers or two kinds of machine. Each
//! metric with its difference, and whether the repeats support it ([`difference`]).
//!
//! A machine gets slower and faster meanwhile. Where the runs measured the machine's floor (`serve: { floor: true }`), the
//! server's CPU time counts in multiples of it.

mod difference;
mod group;
mod metric;
mod page;
mod pair;

use crate::judge::summary::exit;
use crate::record::Writer;
use difference::Is;
use group::Group;
use pair::Pair;
use std::path::PathBuf;
use std::time::SystemTime;

/// What `moim compare` is told.
#[derive(Debug, Clone, PartialEq)]
pub struct CompareOptions {
    /// Records, or directories of records of the same; each is compared with the first.
    pub records: Vec<PathBuf>,
    /// A smaller difference is none, in percent.
    pub margin_pct: f64,
    /// Where the record goes, in a directory of its own.
    pub runs_dir: PathBuf,
}

/// Compares; the exit code: 0, or 112 where a side is worse than the first by more than the margin, 104 where nothing can be
/// compared.
pub fn compare(options: &CompareOptions) -> u8 {
    match run(options) {
        Ok(code) => code,
        Err(why) => {
            errln!("nothing is compared: {why}");
            exit::BAD_CONFIGURATION
        }
    }
}

fn run(options: &CompareOptions) -> Result<u8, String> {
    let margin_pct = options.margin_pct;
    if !(0.0..=100.0).contains(&margin_pct) {
        return Err(format!("--margin {margin_pct}: write 0 to 100 percent"));
    }
    let read = options.records.iter().map(|path| Group::read(path));
    let mut groups = read.collect::<Result<Vec<Group>, String>>()?;
    let (first, others) = match &groups[..] {
        [first, others @ ..] if !others.is_empty() => (first, others),
        _ => return Err("give two records or more".into()),
    };
    others.iter().try_for_each(|other| first.same_as(other))?;
    let scaled = first.floor_ms().filter(|_| others.iter().all(|other| other.floor_ms().is_some()));
    if let Some(floor_ms) = scaled {
        groups.iter_mut().for_each(|group| group.scale_to(floor_ms));
    }
    let pair = |other: &Group| Pair::of(&groups[0], other, margin_pct / 100.0);
    let pairs: Vec<Pair> = groups[1..].iter().map(pair).collect();
    let code = match pairs.iter().any(|pair| pair.are(Is::Worse).next().is_some()) {
        true => exit::WORSE,
        false => exit::PASS,
    };
    let told = |error: std::io::Error| error.to_string();
    let at = SystemTime::now();
    let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
    let command = format!("# moim compare --margin {margin_pct} {}\n", names.join(" "));
    let writer = Writer::create(&options.runs_dir, "compare", at, &command).map_err(told)?;
    let page = page::Page { groups: &groups, pairs: &pairs, margin_pct, scaled: scaled.is_some() };
    let started_at = humantime::format_rfc3339_seconds(at).to_string();
    page.write(writer.dir(), started_at, &command, code).map_err(told)?;
    Ok(code)
}

#[cfg(test)]
mod tests;
