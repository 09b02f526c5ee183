//! Embeds the report's page where it has been built, else a plain page that shows the summary.

use std::path::PathBuf;
use std::{env, fs};

const PLAIN: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>moim: report</title>
<style>:root{color-scheme:light dark}body{font:16px/1.5 system-ui;margin:2rem}pre{overflow:auto}</style>
<h1>moim: report</h1>
<pre>__MOIM_SUMMARY__</pre>
<p>This is the plain report. For charts build the page (<code>cd web &amp;&amp; npm ci &amp;&amp;
npm run build</code>), build moim again and render this run once more.</p>
<script id="record" type="application/json">"__MOIM_RECORD__"</script>
</html>
"#;

fn main() -> std::io::Result<()> {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let built = manifest.join("../../web/report/dist/index.html");
    println!("cargo::rerun-if-changed=build.rs");
    // A path that is not there would run this at every build, and a directory is watched with all
    // that is in it: the page if it is there, else its source.
    let source = manifest.join("../../web/report");
    if let Some(watched) = [&built, &source].into_iter().find(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", watched.display());
    }
    let page = fs::read_to_string(&built).unwrap_or_default();
    let page = if page.contains("\"__MOIM_RECORD__\"") { page } else { PLAIN.to_owned() };
    let out = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    fs::write(out.join("report.html"), page)
}
