//! Ends what the lab has started if the lab itself is killed.
//!
//! A process that is killed cannot clean up, and the signal at a parent's death depends on the thread that
//! started the child. Therefore a small shell beside each child waits for the end of a pipe that the lab
//! holds: the pipe ends however the lab ends.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Keeps the last process group it was told; at the end of the pipe it kills that, and then removes
/// the directory it was given. Signals that end a terminal's processes are not for it.
const SCRIPT: &str = r#"trap '' HUP INT QUIT TERM
while read -r line; do group=$line; done
[ -z "$group" ] || kill -s KILL -- "-$group"
[ -z "$1" ] || { sleep 1; rm -rf -- "$1"; }"#;

/// Stands by for one process group. Dropping it ends it, and nothing else.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Guard {
    /// Starts one; `directory` is removed too where the lab is killed.
    ///
    /// # Errors
    /// There is no `/bin/sh`, or the system refuses a process.
    pub fn start(directory: Option<&Path>) -> io::Result<Self> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "moim-guard"])
            .args(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // What kills the lab's whole group leaves it alive.
            .process_group(0)
            .spawn()
            .map_err(|error| io::Error::other(format!("/bin/sh: {error}")))?;
        let pipe = child.stdin.take();
        Ok(Self { child, pipe })
    }

    /// Tells it the process group (its leader's id) that shall not outlive the lab.
    ///
    /// # Errors
    /// The guard is gone.
    pub fn watch(&mut self, group: u32) -> io::Result<()> {
        let pipe = self.pipe.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(pipe, "{group}")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Killed before its pipe ends, it does nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").process_group(0).spawn().expect("sleep")
    }

    #[test]
    fn at_the_end_of_the_pipe_the_group_is_killed_and_the_directory_gone() {
        let directory = tempfile::tempdir().expect("tempdir");
        let path = directory.path().join("profile");
        std::fs::create_dir(&path).expect("directory");
        let mut sleeper = sleeper();
        let mut guard = Guard::start(Some(&path)).expect("start");
        guard.watch(sleeper.id()).expect("told");
        // What the kernel does where the lab is killed.
        drop(guard.pipe.take());
        assert_eq!(sleeper.wait().expect("wait").signal(), Some(9));
        assert!(guard.child.wait().expect("wait").success());
        assert!(!path.exists());
        assert!(guard.watch(1).is_err(), "nobody listens any more");
    }

    #[test]
    fn dropped_or_told_nothing_it_kills_nobody() {
        let mut sleeper = sleeper();
        let mut guard = Guard::start(None).expect("start");
        guard.watch(sleeper.id()).expect("told");
        drop(guard);
        let mut idle = Guard::start(None).expect("start");
        drop(idle.pipe.take());
        assert!(idle.child.wait().expect("wait").success());
        assert_eq!(sleeper.try_wait().expect("alive"), None);
        sleeper.kill().expect("kill");
        sleeper.wait().expect("wait");
    }
}
