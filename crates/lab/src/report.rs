//! The report: one HTML file, a pure function of the record.

use crate::judge::summary::Summary;
use crate::judge::whole::{self, Record};
use crate::record::{Meta, write_json, write_summary};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The page with a place for the record; see `build.rs`.
const TEMPLATE: &str = include_str!(concat!(env!("OUT_DIR"), "/report.html"));
/// What stands in the template where the record goes.
const PLACEHOLDER: &str = "\"__MOIM_RECORD__\"";

/// Renders a record as a page.
///
/// # Errors
/// The record cannot be written as JSON, or the template has no place for it.
pub fn html(record: &Record) -> io::Result<String> {
    fill(TEMPLATE, record)
}

fn fill(template: &str, record: &Record) -> io::Result<String> {
    let Some((before, after)) = template.split_once(PLACEHOLDER) else {
        return Err(io::Error::other("the report's template has no place for the record"));
    };
    // `<` could end the script element; inside a JSON string it may be written as an escape, and
    // outside of strings JSON has none.
    let json = serde_json::to_string(record)?.replace('<', "\\u003c");
    let text = crate::judge::summary::table(&record.summary, &record.meta);
    let after = after.replacen("__MOIM_SUMMARY__", &escape(&text), 1);
    Ok(format!("{before}{json}{after}"))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
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

/// Reads the record in a directory and writes its `report.html`; gives the path.
///
/// # Errors
/// The record cannot be read or the report cannot be written.
pub fn render(run_dir: &Path) -> io::Result<PathBuf> {
    let page = html(&whole::read(run_dir)?)?;
    let path = run_dir.join("report.html");
    fs::write(&path, page)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{EventRecord, Level, Writer};
    use crate::testing::{meta, sample};
    use std::time::SystemTime;

    fn record_in(page: &str) -> Record {
        let start = page.find("{\"meta\"").expect("the record");
        let end = start + page[start..].find("</script>").expect("end of the script");
        serde_json::from_str(page[start..end].trim()).expect("valid JSON")
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
        writer.event(&EventRecord { t_ms: 1, text, person: None, level: Level::Warn });
        let record = whole::read(writer.dir()).expect("read");
        writer.summary(&record.summary).expect("summary");

        let path = render(writer.dir()).expect("render");
        let page = fs::read_to_string(&path).expect("page");
        assert!(!page.contains("<script>alert"), "text of the record is no markup");
        assert_eq!(record_in(&page), record, "the page holds the whole record");
        render(writer.dir()).expect("again");
        assert_eq!(fs::read_to_string(&path).expect("page"), page, "a pure function");
    }

    #[test]
    fn a_template_without_a_place_is_told() {
        let runs = tempfile::tempdir().expect("tempdir");
        let writer = Writer::create(runs.path(), "x", SystemTime::UNIX_EPOCH, "").expect("create");
        writer.meta(&meta()).expect("meta");
        let record = whole::read(writer.dir()).expect("read");
        assert!(fill("<p></p>", &record).is_err());
        assert!(render(Path::new("/nowhere")).is_err());
    }
}
