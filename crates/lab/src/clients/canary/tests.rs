use super::browser::parse_port_file;
use super::cdp::CdpError;
use super::*;
use serde_json::json;
use std::ffi::OsStr;
use std::time::Duration;

/// Whether the real browser is there; says so where it is not.
fn chromium() -> bool {
    let there = find("chromium", &std::env::var_os("PATH").unwrap_or_default()).is_some();
    if !there {
        eprintln!("skipped: no chromium on PATH; {INSTALL}");
    }
    there
}

/// A call page in miniature, as a data: URL.
fn page_url(script: &str) -> String {
    let html = format!("<!doctype html><title>t</title><p>hello</p><script>{script}</script>");
    format!("data:text/html;base64,{}", data_encoding::BASE64.encode(html.as_bytes()))
}

#[test]
fn a_missing_browser_names_the_cure() {
    assert_eq!(find("chromium", OsStr::new("/nowhere:/proc")), None);
    assert!(INSTALL.contains("apt-get install chromium"));
}

#[test]
fn the_port_file() {
    let address = parse_port_file("45123\n/devtools/browser/ab-cd");
    assert_eq!(address.as_deref(), Some("ws://127.0.0.1:45123/devtools/browser/ab-cd"));
    assert_eq!(parse_port_file("45123"), None, "half written");
    assert_eq!(parse_port_file("x\n/devtools/browser/ab"), None);
    assert_eq!(parse_port_file(""), None);
}

#[tokio::test]
async fn two_pages_of_a_real_browser_are_visible_and_answer() {
    if !chromium() {
        return;
    }
    let mut browser = Browser::launch(None).await.expect("launch");
    assert!(browser.version().contains("Chrome"), "{}", browser.version());
    let moim = "window.moim = {
        state: () => ({ state: 'connected', participants: [], tiles: [], error: null }),
        sampleNow: async () => ({ participant: 'p1', at_ms: 5, interval_ms: 3000, rtt_ms: 1.5 }),
    }; console.error('a', 1, { x: 2 }); setTimeout(() => { throw new Error('on purpose') })";
    let one = browser.open(&page_url(moim)).await.expect("open");
    let two = browser.open(&page_url("")).await.expect("open");

    let sum = one.evaluate("Promise.resolve(40 + 2)").await.expect("evaluate");
    assert_eq!(sum, json!(42));
    let error = one.evaluate("nothing.here").await.expect_err("throws").to_string();
    assert!(error.contains("ReferenceError"), "{error}");
    let connected = PageState { state: "connected".into(), error: None };
    assert_eq!(one.state().await.expect("state"), Some(connected));
    assert_eq!(two.state().await.expect("state"), None, "no window.moim yet");
    let sample = one.sample().await.expect("sample");
    assert_eq!((sample.participant.as_str(), sample.rtt_ms), ("p1", Some(1.5)));
    assert!(two.sample().await.is_err());

    for page in [&one, &two] {
        let seen = page.evaluate("document.visibilityState").await.expect("evaluate");
        assert_eq!(seen, json!("visible"), "a hidden page would be throttled");
    }
    let mut errors = Vec::new();
    while errors.len() < 2 {
        errors.extend(one.take_errors());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(errors.iter().any(|e| e.starts_with("a 1")), "{errors:?}");
    assert!(errors.iter().any(|e| e.contains("on purpose")), "{errors:?}");
    let png = two.screenshot().await.expect("screenshot");
    assert!(png.starts_with(b"\x89PNG"));
    let tracks = "navigator.mediaDevices ? 'yes' : 'no'";
    assert!(two.evaluate(tracks).await.is_ok());

    two.close().await;
    let pid = browser.pid();
    browser.stop().await;
    assert!(crate::observe::proc::family_time(pid).is_zero(), "no process is left");
    let error = one.evaluate("1").await.expect_err("gone").to_string();
    assert!(error.contains("gone"), "{error}");
    let refused = browser.open("data:,x").await;
    assert!(matches!(refused, Err(CdpError::Closed(_))), "{refused:?}");
}
