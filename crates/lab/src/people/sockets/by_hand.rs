//! A real browser that stays connected during the whole load and pings by hand, once a second: it shows
//! whether the service still works for a real client.

use crate::base::Url;
use crate::clients::canary::Browser;
use crate::people::stage::Stage;
use crate::record::{ByHand, Latency};
use hdrhistogram::Histogram;
use serde_json::Value;
use std::time::Duration;

/// What the page does: the browser's own WebSocket, the protocol's handshake and heartbeat, and a
/// ping a second whose answer is matched by its call id.
const SCRIPT: &str = r#"(() => {
  const seen = { pings: 0, answered: 0, lost: 0, live: false, ms: [] };
  window.moimByHand = seen;
  const open = () => {
    const socket = new WebSocket(`ws://${location.host}/socketcluster/`);
    const asked = new Map();
    let cid = 1;
    socket.onopen = () =>
      socket.send(JSON.stringify({ event: "\u0023handshake", data: { authToken: null }, cid }));
    const timer = setInterval(() => {
      if (!seen.live) return;
      asked.set(++cid, performance.now());
      seen.pings++;
      socket.send(JSON.stringify({ event: "ping", data: { from: "page" }, cid }));
    }, 1000);
    socket.onmessage = ({ data }) => {
      if (data === "") return socket.send("");
      for (const packet of [JSON.parse(data)].flat()) {
        if (packet.rid === 1) seen.live = true;
        const at = asked.get(packet.rid);
        if (at === undefined || !(packet.data?.count > 0)) continue;
        asked.delete(packet.rid);
        seen.answered++;
        seen.ms.push(performance.now() - at);
      }
    };
    socket.onclose = () => {
      clearInterval(timer);
      if (seen.live) seen.lost++;
      seen.live = false;
      setTimeout(open, 1000);
    };
  };
  open();
})()"#;

/// Opens `pages` pages and lets them ping until the run ends. Returns what they saw.
///
/// # Errors
/// A page could not be opened or asked.
pub async fn ping_by_hand(
    stage: &Stage,
    browser: &Browser,
    target: &Url,
    pages: u32,
) -> Result<ByHand, String> {
    let failed = |error: &dyn std::fmt::Display| format!("the browser that pings by hand: {error}");
    let mut open = Vec::new();
    for _ in 0..pages {
        let page =
            browser.open(&format!("{target}/healthz")).await.map_err(|error| failed(&error))?;
        start(&page).await.map_err(|error| failed(&error))?;
        open.push(page);
    }
    let mut end = stage.end();
    let _ = end.wait_for(|end| *end).await;
    let mut all = ByHand { pages, ..ByHand::default() };
    let mut us =
        Histogram::<u64>::new_with_max(super::counts::MAX_US, 3).map_err(|error| failed(&error))?;
    for page in open {
        let seen = page.evaluate("window.moimByHand").await.map_err(|error| failed(&error))?;
        let number = |name: &str| seen[name].as_u64().unwrap_or(0);
        all.pings += number("pings");
        all.answered += number("answered");
        all.lost += number("lost");
        for ms in seen["ms"].as_array().into_iter().flatten().filter_map(Value::as_f64) {
            us.saturating_record((ms * 1000.0) as u64);
        }
        page.close().await;
    }
    all.latency = Latency::of(&us);
    Ok(all)
}

/// Starts the script once the page is the server's (its first evaluation may come too soon).
async fn start(
    page: &crate::clients::canary::Page,
) -> Result<(), crate::clients::canary::cdp::CdpError> {
    for _ in 0..100 {
        let here = page.evaluate("location.host").await;
        if here.is_ok_and(|host| host.as_str().is_some_and(|host| !host.is_empty())) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    page.evaluate(SCRIPT).await.map(drop)
}
