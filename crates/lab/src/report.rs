//! The report: one HTML file, a pure function of the record; and its summary for other programs.

mod formats;
mod rows;

use crate::judge::summary::{self, Summary};
use crate::judge::whole;
use crate::record::{
    About, EventRecord, MachineRecord, Meta, Row, write_json, write_summary, write_whole,
};
use data_encoding::BASE64;
use flate2::Compression;
use flate2::write::GzEncoder;
pub use formats::Format;
use rows::{Columns, Rows};
use serde::Serialize;
use std::io;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The page with a place for the record; see `build.rs`.
const TEMPLATE: &str = include_str!(concat!(env!("OUT_DIR"), "/report.html"));
/// What stands in the template where the record goes.
const PLACEHOLDER: &str = "\"__MOIM_RECORD__\"";

/// What a page shows of a record.
#[derive(Serialize)]
struct Page<'a> {
    meta: &'a Meta,
    summary: &'a Summary,
    /// [`Packed`] as JSON, by gzip (RFC 1952), in Base64: numbers that repeat take a tenth of their room then.
    packed: String,
}

/// What is long in a record.
#[derive(Serialize)]
struct Packed {
    samples: Columns,
    machine: Vec<MachineRecord>,
    events: Vec<EventRecord>,
}

/// The page of the record in a directory.
///
/// # Errors
/// The record cannot be read, or the template has no place for it.
fn html(template: &str, run_dir: &Path) -> io::Result<String> {
    let Some((before, after)) = template.split_once(PLACEHOLDER) else {
        return Err(io::Error::other("the report's template has no place for the record"));
    };
    let (meta, summary) = whole::head(run_dir)?;
    let mut rows = Rows::default();
    let broken_samples = whole::each_sample(run_dir, |sample| rows.push(&sample))?;
    let (machine, broken_machine) = whole::machine(run_dir)?;
    let events = whole::events(run_dir, (broken_samples, broken_machine))?;
    let packed = pack(&Packed { samples: rows.columns(), machine, events })?;
    // `<` could end the script element; inside a JSON string it may be written as an escape, and
    // outside of strings JSON has none.
    let page = Page { meta: &meta, summary: &summary, packed };
    let json = serde_json::to_string(&page)?.replace('<', "\\u003c");
    let text = crate::judge::summary::table(&summary, &meta);
    let after = after.replacen("__MOIM_SUMMARY__", &formats::escaped(&text), 1);
    Ok(format!("{before}{json}{after}"))
}

fn pack(value: &impl Serialize) -> io::Result<String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&serde_json::to_vec(value)?)?;
    Ok(BASE64.encode(&encoder.finish()?))
}

/// Writes the record of what was made from runs (a study, a search, a comparison) into a directory, and its `report.html`;
/// gives the path.
///
/// # Errors
/// A file cannot be written.
pub fn write(dir: &Path, meta: &Meta, summary: &Summary) -> io::Result<PathBuf> {
    write_json(dir, "meta.json", meta)?;
    write_summary(dir, summary)?;
    render(dir)
}

/// The same of tables that are no study's, whose making ended with an exit code; `people`: most of a run.
///
/// # Errors
/// As [`write`].
pub fn write_tables(
    dir: &Path,
    meta: &Meta,
    tables: (Vec<Row>, About),
    (code, people): (u8, usize),
) -> io::Result<PathBuf> {
    let mut summary = summary::of_study(meta, &[], tables);
    summary.end(code);
    summary.people = people;
    write(dir, meta, &summary)
}

/// Reads the record in a directory and writes its `report.html`; gives the path.
///
/// # Errors
/// The record cannot be read or the report cannot be written.
pub fn render(run_dir: &Path) -> io::Result<PathBuf> {
    let page = html(TEMPLATE, run_dir)?;
    let path = run_dir.join("report.html");
    write_whole(&path, page.as_bytes())?;
    Ok(path)
}

/// The summary of the record in a directory for other programs.
///
/// # Errors
/// The record cannot be read, or is that of a study: a format has rows of one run.
pub fn formatted(run_dir: &Path, format: Format) -> io::Result<String> {
    let (meta, summary) = whole::head(run_dir)?;
    match summary.study {
        Some(_) => Err(io::Error::other("this is no single run: its tables are in summary.json")),
        None => Ok(formats::write(format, &meta, &summary)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Level, Writer};
    use crate::testing::{meta, sample};
    use flate2::read::GzDecoder;
    use serde_json::Value;
    use std::fs;
    use std::time::SystemTime;

    /// The record in a page, and what is packed in it.
    fn record_in(page: &str) -> (Value, Value) {
        let start = page.find("{\"meta\"").expect("the record");
        let end = start + page[start..].find("</script>").expect("end of the script");
        let record: Value = serde_json::from_str(page[start..end].trim()).expect("valid JSON");
        let packed = record["packed"].as_str().expect("packed");
        let packed = BASE64.decode(packed.as_bytes()).expect("Base64");
        let packed = serde_json::from_reader(GzDecoder::new(&packed[..])).expect("gzip of JSON");
        (record, packed)
    }

    #[test]
    fn record_to_report_round_trip() {
        let runs = tempfile::tempdir().expect("tempdir");
        let writer =
            Writer::create(runs.path(), "x", SystemTime::UNIX_EPOCH, "name: x\n").expect("create");
        let mut meta = meta();
        meta.scenario = "# </script><script>alert(1)</script> \"__MOIM_RECORD__\"\n".into();
        writer.meta(&meta).expect("meta");
        writer.sample(&sample(3_000));
        let text = "a name with < and & and 모임".to_owned();
        let event = EventRecord { t_ms: 1, text, person: None, level: Level::Warn };
        writer.event(&event);
        let summary = whole::read(writer.dir()).expect("read").summary;
        writer.summary(&summary).expect("summary");

        let path = render(writer.dir()).expect("render");
        let page = fs::read_to_string(&path).expect("page");
        assert!(!page.contains("<script>alert"), "text of the record is no markup");
        let (record, packed) = record_in(&page);
        assert_eq!(record["meta"], serde_json::to_value(&meta).expect("meta"));
        assert_eq!(record["summary"], serde_json::to_value(&summary).expect("summary"));
        assert_eq!(packed["events"][0], serde_json::to_value(&event).expect("event"));
        assert_eq!(packed["samples"]["people"][0]["name"], sample(3_000).person);
        assert_eq!(packed["samples"]["rows"]["t_ms"][0], 3_000);
        render(writer.dir()).expect("again");
        assert_eq!(fs::read_to_string(&path).expect("page"), page, "a pure function");
    }

    /// In the shape that version 0.1.0 wrote on its first day: what came later is missing.
    #[test]
    fn the_oldest_record_renders_and_one_that_was_cut_renders_to_there() {
        let first = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report/first");
        let into = tempfile::tempdir().expect("tempdir");
        for file in
            fs::read_dir(&first).expect("a record").map(|entry| entry.expect("a file").path())
        {
            fs::copy(&file, into.path().join(file.file_name().expect("a name"))).expect("copied");
        }
        let packed = || {
            record_in(&fs::read_to_string(render(into.path()).expect("renders")).expect("page")).1
        };
        let whole = packed();
        let rows = &whole["samples"]["rows"];
        assert_eq!(rows["t_ms"], serde_json::json!([3_000, 6_000, 9_000, 3_001, 6_001, 9_001]));
        assert_eq!(rows["figures"]["mos_lq"][0], 4.1);
        assert_eq!((rows["came"][0].as_u64(), rows["lost"][0].as_u64()), (Some(348), Some(2)));
        assert_eq!(whole["events"][1]["text"], "all joined");
        assert_eq!(whole["machine"].as_array().map(Vec::len), Some(3));

        let cut = |name: &str, bytes: usize| {
            let file =
                fs::File::options().write(true).open(into.path().join(name)).expect("a file");
            let long = file.metadata().expect("its length").len();
            file.set_len(long - bytes as u64).expect("cut");
        };
        ["samples.jsonl", "machine.jsonl", "events.jsonl"].iter().for_each(|name| cut(name, 20));
        let there = packed();
        assert_eq!(
            there["samples"]["rows"]["t_ms"],
            serde_json::json!([3_000, 6_000, 9_000, 3_001, 6_001])
        );
        assert_eq!(there["machine"].as_array().map(Vec::len), Some(2));
        assert_eq!(there["events"].as_array().map(Vec::len), Some(1));

        fs::remove_file(into.path().join("summary.json")).expect("a killed run has none");
        let page = fs::read_to_string(render(into.path()).expect("renders")).expect("page");
        assert_eq!(record_in(&page).0["summary"]["verdict"], "inconclusive");
    }

    #[test]
    fn a_template_without_a_place_is_told() {
        let runs = tempfile::tempdir().expect("tempdir");
        let writer = Writer::create(runs.path(), "x", SystemTime::UNIX_EPOCH, "").expect("create");
        writer.meta(&meta()).expect("meta");
        let error = html("<p></p>", writer.dir()).expect_err("no place").to_string();
        assert!(error.contains("no place"), "{error}");
        assert!(render(Path::new("/nowhere")).is_err());
    }
}
