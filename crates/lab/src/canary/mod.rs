//! Canaries: real participants in a real browser (Chromium), driven over its DevTools protocol.
//!
//! One browser process with one page (context and window of its own) a canary. The page is the
//! same that people use; it answers through `window.moim`.

pub mod cdp;
pub mod ears;
mod link;

use crate::guard::Guard;
use cdp::{Cdp, CdpError, PageEvent};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use wire::QualitySample;

/// The browser has so long to open its DevTools port.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The browser has so long to end by itself before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// A page has so long to answer.
const EVALUATE_TIMEOUT: Duration = Duration::from_secs(10);

const FLAGS: [&str; 19] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
    "--allow-loopback-in-peer-connection",
    "--disable-features=WebRtcHideLocalIpsWithMdns",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-background-timer-throttling",
    "--window-size=1280,720",
    "--remote-debugging-port=0",
];

/// What to do where no browser is installed.
pub const INSTALL: &str =
    "install it with `apt-get install chromium`, or leave chromium people out";

/// What the lab wants of a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hooks {
    /// Its descriptions wait for [`Page::put_link`].
    pub link: bool,
    /// It looks for marks in what it plays: [`ears::PageEars`].
    pub ears: bool,
    /// Its jitter buffers of sound are no shorter than so many ms.
    pub jitter_buffer_ms: Option<u32>,
}

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

/// A browser process.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    pid: u32,
    cdp: Cdp,
    version: String,
    /// Kept while the browser runs: it does not outlive a lab that is killed.
    _guard: Guard,
    /// Kept while the browser runs: its profile.
    profile: TempDir,
}

/// Finds a program on PATH.
pub fn find(name: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

impl Browser {
    /// Starts `chromium` from PATH without a window.
    ///
    /// # Errors
    /// It is not there (with the line that installs it), cannot be started or opens no port.
    pub async fn launch() -> io::Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = find("chromium", &path).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("no chromium on PATH: {INSTALL}"))
        })?;
        let profile = tempfile::Builder::new().prefix("moim-chromium-").tempdir()?;
        let log = fs::File::create(profile.path().join("chromium.log"))?;
        let mut guard = Guard::start(Some(profile.path()))?;
        let mut child = Command::new(&program)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A group of its own: ended as a whole, and Ctrl-C is for the lab alone.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| io::Error::other(format!("{}: {error}", program.display())))?;
        let pid = child.id().ok_or_else(|| io::Error::other("chromium ended at once"))?;
        guard.watch(pid)?;
        match Self::connect(&mut child, profile.path()).await {
            Ok((cdp, version)) => Ok(Self { child, pid, cdp, version, _guard: guard, profile }),
            Err(error) => {
                end_group(pid, Signal::KILL);
                let _ = child.wait().await;
                Err(error)
            }
        }
    }

    async fn connect(child: &mut Child, profile: &Path) -> io::Result<(Cdp, String)> {
        let address = devtools_address(child, profile).await?;
        let cdp = Cdp::connect(&address).await.map_err(io::Error::other)?;
        let version = cdp.call(None, "Browser.getVersion", json!({})).await;
        let version = version.map_err(io::Error::other)?;
        Ok((cdp, version["product"].as_str().unwrap_or("unknown").to_owned()))
    }

    /// The browser's main process; the others descend from it.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Such as `Chrome/156.0.1.2`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Opens a page in a context and window of its own, so that it is visible and never throttled.
    ///
    /// # Errors
    /// The browser refuses or is gone.
    pub async fn open(&self, url: &str) -> Result<Page, CdpError> {
        self.open_with(url, Hooks::default()).await
    }

    /// The same with what the lab wants of the page before its own scripts run.
    ///
    /// # Errors
    /// As [`Browser::open`].
    pub async fn open_with(&self, url: &str, hooks: Hooks) -> Result<Page, CdpError> {
        let context = self.cdp.call(None, "Target.createBrowserContext", json!({})).await?;
        let target = json!({
            "url": "about:blank",
            "browserContextId": context["browserContextId"],
            "newWindow": true,
            "width": 1280,
            "height": 720,
        });
        let target = self.cdp.call(None, "Target.createTarget", target).await?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.cdp.call(None, "Target.attachToTarget", attach).await?;
        let session = attached["sessionId"]
            .as_str()
            .ok_or_else(|| CdpError::Malformed("no session".into()))?
            .to_owned();
        let events = self.cdp.events_of(&session);
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            self.cdp.call(Some(&session), domain, json!({})).await?;
        }
        let page = Page {
            cdp: self.cdp.clone(),
            session,
            context: context["browserContextId"].clone(),
            events: Mutex::new(events),
        };
        if hooks.ears {
            // The page lets no script in but its own, and the ears have a worker of theirs.
            page.call("Page.setBypassCSP", json!({ "enabled": true })).await?;
        }
        let buffer = hooks.jitter_buffer_ms.map(|ms| JITTER_BUFFER.replace("MS", &ms.to_string()));
        let scripts =
            [hooks.link.then_some(link::HOOK), hooks.ears.then_some(ears::HOOK), buffer.as_deref()];
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

    /// Ends the browser with all its processes.
    pub async fn stop(&mut self) {
        let asked = self.cdp.call(None, "Browser.close", json!({}));
        let _ = tokio::time::timeout(STOP_TIMEOUT, asked).await;
        let _ = tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await;
        end_group(self.pid, Signal::KILL);
        let _ = self.child.wait().await;
    }

    /// What the browser wrote on its own account, for a failure's detail.
    pub fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.profile.path().join("chromium.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Only while the child was not waited for is the id surely still its own.
        if self.child.id().is_some() {
            end_group(self.pid, Signal::KILL);
        }
    }
}

fn end_group(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(pid, signal);
    }
}

/// The browser writes its port and path into a file of its profile.
async fn devtools_address(child: &mut Child, profile: &Path) -> io::Result<String> {
    let begin = Instant::now();
    loop {
        if let Ok(text) = fs::read_to_string(profile.join("DevToolsActivePort"))
            && let Some(address) = parse_port_file(&text)
        {
            return Ok(address);
        }
        let ended = child.try_wait()?;
        if ended.is_some() || begin.elapsed() > START_TIMEOUT {
            let log = fs::read_to_string(profile.join("chromium.log")).unwrap_or_default();
            let last = log.lines().last().unwrap_or("no output");
            return Err(io::Error::other(match ended {
                Some(status) => format!("chromium ended at its start ({status}): {last}"),
                None => format!("chromium opened no DevTools port in time: {last}"),
            }));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn parse_port_file(text: &str) -> Option<String> {
    let (port, path) = text.split_once('\n')?;
    let port: u16 = port.trim().parse().ok()?;
    let path = path.trim();
    path.starts_with("/devtools/").then(|| format!("ws://127.0.0.1:{port}{path}"))
}

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

#[cfg(test)]
mod tests;
