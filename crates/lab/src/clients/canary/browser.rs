//! A browser process, and pages that it opens.

use super::cdp::{Cdp, CdpError};
use super::page::{Hooks, Page};
use crate::base::guard::Guard;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use std::{fs, io};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// The browser has so long to open its DevTools port.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The browser has so long to end by itself before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The size of a page's window that is not said otherwise, in pixels.
pub const WINDOW: (u32, u32) = (1280, 720);

const FLAGS: [&str; 18] = [
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
    /// Starts `chromium` from PATH without a window; its fake camera has so many pictures a second, or as many as it likes.
    ///
    /// # Errors
    /// It is not there (with the line that installs it), cannot be started or opens no port.
    pub async fn launch(frames_per_second: Option<u32>) -> io::Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = find("chromium", &path).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("no chromium on PATH: {INSTALL}"))
        })?;
        let camera = "--use-fake-device-for-media-stream";
        let camera =
            frames_per_second.map_or(camera.to_owned(), |fps| format!("{camera}=fps={fps}"));
        let profile = tempfile::Builder::new().prefix("moim-chromium-").tempdir()?;
        let log = fs::File::create(profile.path().join("chromium.log"))?;
        let mut guard = Guard::start(Some(profile.path()))?;
        let mut child = Command::new(&program)
            .args(FLAGS)
            .arg(camera)
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
        self.open_with(url, Hooks { window: WINDOW, ..Hooks::default() }).await
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
            "width": hooks.window.0,
            "height": hooks.window.1,
        });
        let target = self.cdp.call(None, "Target.createTarget", target).await?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.cdp.call(None, "Target.attachToTarget", attach).await?;
        let session = attached["sessionId"]
            .as_str()
            .ok_or_else(|| CdpError::Malformed("no session".into()))?
            .to_owned();
        let context = context["browserContextId"].clone();
        Page::load(self.cdp.clone(), (session, context), url, hooks).await
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

pub(super) fn parse_port_file(text: &str) -> Option<String> {
    let (port, path) = text.split_once('\n')?;
    let port: u16 = port.trim().parse().ok()?;
    let path = path.trim();
    path.starts_with("/devtools/").then(|| format!("ws://127.0.0.1:{port}{path}"))
}
