//! Users of a server of our own, and the tokens with which they log in: as an application makes them, by the server's own
//! command line.

use std::path::PathBuf;
use std::process::Stdio;
use std::{fs, io};
use tempfile::TempDir;
use tokio::process::Command;

/// The name of the key that the lab's tokens are signed with.
const KEY: &str = "lab";

/// A key for a server of our own; its file is gone with it.
#[derive(Debug)]
pub(crate) struct Login {
    exe: PathBuf,
    secret: String,
    dir: TempDir,
}

impl Login {
    /// Makes a key for a server that is started from `exe`.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn new(exe: PathBuf) -> io::Result<Self> {
        let mut bytes = [0_u8; 32];
        io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut bytes)?;
        let secret = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        // Only its owner may enter a temporary directory; the server wants that of the file, too.
        let dir = tempfile::Builder::new().prefix("moim-key-").tempdir()?;
        let login = Self { exe, secret, dir };
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        io::Write::write_all(&mut options.open(login.file())?, login.secret.as_bytes())?;
        Ok(login)
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("lab.key")
    }

    /// The line of the server's settings.
    pub(crate) fn settings(&self) -> String {
        format!("keys: {{ {KEY}: {{ secret_file: \"{}\" }} }}\n", self.file().display())
    }

    /// A token with which a user enters a room.
    ///
    /// # Errors
    /// `moim token` cannot be run, or what it says.
    pub(crate) async fn token(&self, user: &str, room: &str) -> Result<String, String> {
        let made = Command::new(&self.exe)
            .args(["token", "--key", KEY, "--identity", user, "--name", user, "--room", room])
            .env("MOIM_SECRET", &self.secret)
            .stdin(Stdio::null())
            .output()
            .await
            .map_err(|error| format!("{}: {error}", self.exe.display()))?;
        match made.status.success() {
            true => Ok(String::from_utf8_lossy(&made.stdout).trim().to_owned()),
            false => Err(String::from_utf8_lossy(&made.stderr).trim().to_owned()),
        }
    }
}
