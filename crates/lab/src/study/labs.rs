//! Several sessions at once, each in a lab of its own: a process may open only so many files, the lab's as well as the
//! server's.

use super::session::{Session, Sessions};
use crate::base;
use crate::base::guard::Guard;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Labs that were asked to end have so long for their reports.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// A lab under way: `moim load` with a scenario of its own.
struct Lab {
    name: String,
    child: Child,
    log: PathBuf,
    /// If this lab is killed, the guard ends the other.
    _guard: Guard,
}

impl Lab {
    fn start(exe: &Path, dir: &Path, name: &str, text: &str) -> io::Result<Self> {
        let (scenario, log) = (dir.join(format!("{name}.yaml")), dir.join(format!("{name}.log")));
        fs::write(&scenario, format!("name: {name}\n{text}"))?;
        let output = File::create(&log)?;
        let mut guard = Guard::start(None)?;
        let child = Command::new(exe)
            .arg("load")
            .arg(&scenario)
            .arg("--plain")
            .arg("--runs")
            .arg(dir)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // A group of its own: Ctrl-C is for the study, which passes it on.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        guard.watch(child.id().ok_or_else(|| io::Error::other("the lab ended at once"))?)?;
        Ok(Self { name: name.to_owned(), child, log, _guard: guard })
    }

    fn interrupt(&self) {
        if let Some(group) = self.child.id().and_then(|id| Pid::from_raw(id as i32)) {
            let _ = kill_process_group(group, Signal::INT);
        }
    }

    /// The directory of its record; without one the end of what it said.
    fn record(&self, dir: &Path) -> Result<PathBuf, String> {
        let ending = format!("Z-{}", self.name);
        let entries = fs::read_dir(dir).map_err(|error| error.to_string())?;
        let found = entries
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.is_dir() && path.to_string_lossy().ends_with(&ending));
        found.filter(|path| path.join("summary.json").exists()).ok_or_else(|| {
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            let last = said.lines().next_back().unwrap_or("nothing");
            format!("the lab of {} left no whole record; it said: {last}", self.name)
        })
    }
}

/// Runs these scenarios (name, and all of the text but that) at once and reads their records, in order.
pub(super) async fn run_at_once(
    sessions: &mut Sessions,
    scenarios: &[(String, String)],
) -> Result<Vec<Session>, String> {
    let result = try_run(sessions, scenarios).await;
    if let Err(reason) = &result {
        sessions.lacks(reason.clone());
    }
    result
}

async fn try_run(
    sessions: &mut Sessions,
    scenarios: &[(String, String)],
) -> Result<Vec<Session>, String> {
    if sessions.interrupted() {
        return Err("the study was interrupted before".into());
    }
    let dir = sessions.dir().to_owned();
    let exe = sessions.exe().map_err(|error| format!("this binary is not to be found: {error}"))?;
    let mut labs = Vec::new();
    for (name, text) in scenarios {
        errln!("--- session {name}, in a lab of its own");
        let lab = Lab::start(&exe, &dir, name, text);
        labs.push(lab.map_err(|error| format!("a lab for {name} could not be started: {error}"))?);
    }
    let interrupted = {
        let mut all = std::pin::pin!(async {
            for lab in &mut labs {
                let _ = lab.child.wait().await;
            }
        });
        tokio::select! {
            () = &mut all => false,
            () = base::asked_to_end() => true,
        }
    };
    if interrupted {
        sessions.interrupt();
        labs.iter().for_each(Lab::interrupt);
        let ended = async {
            for lab in &mut labs {
                let _ = lab.child.wait().await;
            }
        };
        // Those that are still there are killed with their handles.
        let _ = timeout(END_TIMEOUT, ended).await;
    }
    labs.iter().map(|lab| sessions.take(&lab.name, &lab.record(&dir)?)).collect()
}
