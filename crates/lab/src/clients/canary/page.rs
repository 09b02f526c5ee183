//! A page of the browser.

use super::cdp::{self, Cdp, CdpError, PageEvent};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::mpsc;
use wire::QualitySample;

/// A page has so long to answer.
const EVALUATE_TIMEOUT: Duration = Duration::from_secs(10);

/// What the lab wants of a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hooks {
    /// The size of its window, in pixels.
    pub window: (u32, u32),
    /// Its descriptions wait for [`super::put_link`].
    pub link: bool,
    /// It looks for marks in what it plays: [`super::ears::PageEars`].
    pub ears: bool,
    /// Its camera shows a time code, and it reads those of others: [`super::eyes::see`].
    pub time_code: bool,
    /// Its jitter buffers of sound are no shorter than so many ms.
    pub jitter_buffer_ms: Option<u32>,
}

/// What runs in the page before its own scripts.
const EARS: &str = include_str!("ears.js");

/// What runs in the page before its own scripts.
const EYES: &str = include_str!("eyes.js");

/// What runs in the page before its own scripts.
const LINK: &str = "(() => {
  const asked = [], waiting = new Map();
  let last = 0;
  window.moimLink = {
    take: () => asked.splice(0),
    give: (id, sdp) => { waiting.get(id)?.(sdp); waiting.delete(id); },
  };
  const real = RTCPeerConnection.prototype.setRemoteDescription;
  RTCPeerConnection.prototype.setRemoteDescription = async function (description) {
    if (!description?.sdp) return real.call(this, description);
    const id = ++last;
    const sdp = await new Promise((given) => { waiting.set(id, given); asked.push({ id, sdp: description.sdp }); });
    return real.call(this, { type: description.type, sdp });
  };
})()";

/// Keeps the jitter buffers of a page's sound from being shorter, before its own scripts run.
const JITTER_BUFFER: &str = "(() => {
  const Real = RTCPeerConnection;
  window.RTCPeerConnection = class extends Real {
    constructor(...options) {
      super(...options);
      this.addEventListener('track', ({ track, receiver }) => {
        if (track.kind === 'audio') receiver.jitterBufferTarget = MS;
      });
    }
  };
})()";

/// A page of the browser.
#[derive(Debug)]
pub struct Page {
    cdp: Cdp,
    session: String,
    context: Value,
    events: Mutex<mpsc::Receiver<PageEvent>>,
}

/// What the call page says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageState {
    /// `connecting`, `connected`, `reconnecting`, `ended`.
    pub state: String,
    /// The error that it shows, if one.
    pub error: Option<String>,
}

impl Page {
    /// Loads `url` in a tab that has just been made: its session and its context.
    ///
    /// # Errors
    /// The browser refuses or is gone.
    pub(super) async fn load(
        cdp: Cdp,
        (session, context): (String, Value),
        url: &str,
        hooks: Hooks,
    ) -> Result<Self, CdpError> {
        let events = Mutex::new(cdp.events_of(&session));
        let page = Self { cdp, session, context, events };
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            page.call(domain, json!({})).await?;
        }
        if hooks.ears || hooks.time_code {
            // The page lets no script in but its own, and ears and eyes have workers of theirs.
            page.call("Page.setBypassCSP", json!({ "enabled": true })).await?;
        }
        let buffer = hooks.jitter_buffer_ms.map(|ms| JITTER_BUFFER.replace("MS", &ms.to_string()));
        let (link, ears) = (hooks.link.then_some(LINK), hooks.ears.then_some(EARS));
        let eyes = hooks.time_code.then_some(EYES);
        let scripts = [link, ears, eyes, buffer.as_deref()];
        for source in scripts.into_iter().flatten() {
            let source = json!({ "source": source });
            page.call("Page.addScriptToEvaluateOnNewDocument", source).await?;
        }
        let navigated = page.call("Page.navigate", json!({ "url": url })).await?;
        match navigated["errorText"].as_str() {
            Some(error) if !error.is_empty() => Err(CdpError::Failed(format!("{url}: {error}"))),
            _ => Ok(page),
        }
    }

    async fn call(&self, method: &str, params: Value) -> Result<Value, CdpError> {
        self.cdp.call(Some(&self.session), method, params).await
    }

    /// Evaluates an expression in the page and waits for the promise it may give.
    ///
    /// # Errors
    /// It throws, does not come to an end in time, or the page is gone.
    pub async fn evaluate(&self, expression: &str) -> Result<Value, CdpError> {
        let params =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut answer =
            tokio::time::timeout(EVALUATE_TIMEOUT, self.call("Runtime.evaluate", params))
                .await
                .map_err(|_| CdpError::Timeout("Runtime.evaluate".into()))??;
        if let Some(thrown) = answer.get("exceptionDetails") {
            return Err(CdpError::Failed(cdp::exception_text(thrown)));
        }
        Ok(answer["result"]["value"].take())
    }

    /// What the call page says about itself; none while it is still loading.
    ///
    /// # Errors
    /// As [`Page::evaluate`].
    pub async fn state(&self) -> Result<Option<PageState>, CdpError> {
        let expression = "(() => { const s = window.moim?.state?.(); \
             return s ? { state: String(s.state), error: s.error ? String(s.error.message ?? s.error) : null } : null })()";
        let value = self.evaluate(expression).await?;
        Ok(value["state"].as_str().map(|state| PageState {
            state: state.to_owned(),
            error: value["error"].as_str().map(str::to_owned),
        }))
    }

    /// A sample of the call page, now.
    ///
    /// # Errors
    /// As [`Page::evaluate`], or it gives something else than a sample.
    pub async fn sample(&self) -> Result<QualitySample, CdpError> {
        let value = self.evaluate("window.moim.sampleNow()").await?;
        if value.is_null() {
            return Err(CdpError::Malformed("sampleNow() gave nothing".into()));
        }
        serde_json::from_value(value)
            .map_err(|error| CdpError::Malformed(format!("sampleNow(): {error}")))
    }

    /// Errors of the page since the last call: exceptions and what it wrote as errors.
    pub fn take_errors(&self) -> Vec<String> {
        let mut events = self.events.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut errors = Vec::new();
        while let Ok(event) = events.try_recv() {
            errors.extend(event.error_text());
        }
        errors
    }

    /// A picture of the page, as PNG.
    ///
    /// # Errors
    /// The page is gone or gives no picture.
    pub async fn screenshot(&self) -> Result<Vec<u8>, CdpError> {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" })).await?;
        let data = picture["data"].as_str().unwrap_or_default();
        data_encoding::BASE64
            .decode(data.as_bytes())
            .ok()
            .filter(|png| !png.is_empty())
            .ok_or_else(|| CdpError::Malformed("a picture that is not base64".into()))
    }

    /// Closes the page with its context.
    pub async fn close(self) {
        let context = json!({ "browserContextId": self.context });
        let _ = self.cdp.call(None, "Target.disposeBrowserContext", context).await;
    }
}
