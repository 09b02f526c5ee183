//! What the process may read and be: files with secrets that nobody else may read, and the user it becomes once
//! its ports are bound.

use rustix::process::{Gid, Uid, getegid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid, set_thread_uid};
use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::str::FromStr;

/// Longest file with a secret, in bytes.
const SECRET_BYTES: u64 = 4 << 10;
/// What everybody on the machine may do with a file.
const OTHERS: u32 = 0o007;
/// The same for its group.
const GROUP: u32 = 0o070;

/// What is wrong with a file, and what helps. Never with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// What is wrong.
    pub what: String,
    /// What helps.
    pub cure: String,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.cure)
    }
}

/// A secret from its file, without the line end.
///
/// # Errors
/// The file cannot be read, others or its group may read it, or it is no short text. Files that systemd made
/// for this service (`LoadCredential=`) have a group bit that is no right of a group.
pub fn read(path: &Path) -> Result<String, Unfit> {
    let (file, metadata) = open(path)?;
    check_mode(path, &metadata, of_a_secret(path))?;
    let mut text = String::new();
    let read = file.take(SECRET_BYTES + 1).read_to_string(&mut text);
    if read.is_err() || text.len() as u64 > SECRET_BYTES {
        let what = format!("{} is no text of at most {SECRET_BYTES} bytes", path.display());
        return Err(Unfit { what, cure: "write the secret alone into it".into() });
    }
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Whether settings with a secret in them are kept from others, as a secret's own file is.
///
/// # Errors
/// The file cannot be read, or others or its group may read it.
pub fn check_settings(path: &Path) -> Result<(), Unfit> {
    let (_, metadata) = open(path)?;
    check_mode(path, &metadata, of_a_secret(path))
}

/// Who may not do anything with a file that holds a secret.
fn of_a_secret(path: &Path) -> u32 {
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY");
    let of_systemd = credentials.is_some_and(|directory| path.starts_with(directory));
    if of_systemd { OTHERS } else { OTHERS | GROUP }
}

/// Whether a private key's file is kept from others; a group may be let in, as distributions do for certificates.
///
/// # Errors
/// The file cannot be read, or everybody may read it.
pub fn check_key(path: &Path) -> Result<(), Unfit> {
    let (_, metadata) = open(path)?;
    check_mode(path, &metadata, OTHERS)
}

fn open(path: &Path) -> Result<(File, Metadata), Unfit> {
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
    opened.map(|(metadata, file)| (file, metadata)).map_err(|error| Unfit {
        what: format!("{} cannot be read ({error})", path.display()),
        cure: "check the path, its owner and its permissions".into(),
    })
}

fn check_mode(path: &Path, metadata: &Metadata, refused: u32) -> Result<(), Unfit> {
    let mode = metadata.permissions().mode() & 0o777;
    if mode & refused == 0 {
        return Ok(());
    }
    let path = path.display();
    let who = if mode & OTHERS != 0 { "everybody on this machine" } else { "a whole group" };
    let what = format!("{path} is open to {who} (mode {mode:04o})");
    Err(Unfit {
        what,
        cure: format!("run `chmod 600 {path}`, and replace the secret if others had access"),
    })
}

/// A user, and perhaps a group, by name or number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAs {
    user: String,
    group: Option<String>,
}

impl FromStr for RunAs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let is_name = |name: &str| {
            !name.is_empty()
                && name.len() <= 64
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.$".contains(c))
        };
        if !is_name(user) || group.is_some_and(|group| !is_name(group)) {
            return Err(format!("{text:?} is no user"));
        }
        Ok(Self { user: user.into(), group: group.map(Into::into) })
    }
}

impl fmt::Display for RunAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.group {
            Some(group) => write!(f, "{}:{group}", self.user),
            None => f.write_str(&self.user),
        }
    }
}

impl RunAs {
    /// Becomes this user for good; nothing where the process is this user already. The system does so for one thread,
    /// so there must be no other yet.
    ///
    /// # Errors
    /// There is no such user or group, it is root, the process is neither root nor that user, or has threads.
    pub(crate) fn take_on(&self) -> Result<(), String> {
        let Ids { user, group, groups } = self.ids(&Names::of_this_machine())?;
        if user.is_root() {
            return Err("run_as is root: name another user".into());
        }
        if (geteuid(), getegid()) == (user, group) {
            return Ok(());
        }
        if !geteuid().is_root() {
            return Err(format!(
                "run_as is {self}, and only root may become another user: start the server as root, or leave \
                 run_as out"
            ));
        }
        if !std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1) {
            return Err(format!(
                "the process cannot become {self}: /proc must show its only thread"
            ));
        }
        set_thread_groups(&groups)
            .and_then(|()| set_thread_res_gid(group, group, group))
            .and_then(|()| set_thread_res_uid(user, user, user))
            .map_err(|error| format!("the process cannot become {self}: {error}"))?;
        match set_thread_uid(Uid::ROOT) {
            Ok(()) => Err(format!("the process became {self} and could become root again")),
            Err(_) => Ok(()),
        }
    }

    fn ids(&self, names: &Names) -> Result<Ids, String> {
        let unknown = |kind: &str, name: &str| {
            format!(
                "run_as is {self}: {kind} has no {name}; write the number where another service knows the name"
            )
        };
        let of_user = names.user(&self.user);
        let (user, own_group) = match (self.user.parse::<u32>(), of_user) {
            (Ok(number), _) => (number, number),
            (Err(_), Some(ids)) => ids,
            (Err(_), None) => return Err(unknown("/etc/passwd", &self.user)),
        };
        let group = match &self.group {
            None => own_group,
            Some(group) => match (group.parse::<u32>(), names.group(group)) {
                (Ok(number), _) | (Err(_), Some(number)) => number,
                (Err(_), None) => return Err(unknown("/etc/group", group)),
            },
        };
        let mut groups = vec![group];
        groups.extend(names.groups_with(&self.user).filter(|other| *other != group));
        let groups = groups.into_iter().map(Gid::from_raw).collect();
        Ok(Ids { user: Uid::from_raw(user), group: Gid::from_raw(group), groups })
    }
}

/// A user by numbers.
#[derive(Debug, PartialEq, Eq)]
struct Ids {
    user: Uid,
    group: Gid,
    /// All groups, that one too.
    groups: Vec<Gid>,
}

/// The users and groups of a machine: its two files (passwd(5), group(5)).
#[derive(Debug)]
struct Names {
    passwd: String,
    group: String,
}

impl Names {
    fn of_this_machine() -> Self {
        // Where a file is missing, as in a small container, only numbers are known.
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self { passwd: text("/etc/passwd"), group: text("/etc/group") }
    }

    /// The numbers of a user and of the user's group.
    fn user(&self, name: &str) -> Option<(u32, u32)> {
        let mut fields = row(&self.passwd, name)?.skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    }

    fn group(&self, name: &str) -> Option<u32> {
        row(&self.group, name)?.nth(2)?.parse().ok()
    }

    /// The groups that a user was put into besides the user's own.
    fn groups_with<'a>(&'a self, user: &'a str) -> impl Iterator<Item = u32> + 'a {
        self.group.lines().filter_map(move |line| {
            let mut fields = line.split(':').skip(2);
            let number = fields.next()?.parse().ok()?;
            fields.next()?.split(',').any(|member| member == user).then_some(number)
        })
    }
}

/// The fields of the line that begins with a name.
fn row<'a>(text: &'a str, name: &str) -> Option<std::str::Split<'a, char>> {
    text.lines().map(|line| line.split(':')).find(|fields| fields.clone().next() == Some(name))
}

/// Whether the process may do everything on this machine.
pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};

    #[test]
    fn a_secret_that_others_may_read_is_refused_with_the_cure() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("secret");
        write(&path, "s3cret\n").expect("written");
        let with = |mode| {
            set_permissions(&path, Permissions::from_mode(mode)).expect("chmod");
            (read(&path), check_key(&path).is_ok())
        };
        assert_eq!(with(0o600), (Ok("s3cret".into()), true));
        assert_eq!(with(0o400), (Ok("s3cret".into()), true));
        for (mode, key) in [(0o640, true), (0o620, true), (0o604, false), (0o644, false)] {
            let (secret, as_key) = with(mode);
            let told = secret.expect_err("too open").to_string();
            assert!(told.contains(&format!("(mode {mode:04o})")), "{told}");
            assert!(told.contains("chmod 600 ") && !told.contains("s3cret"), "{told}");
            assert_eq!(as_key, key, "{mode:o}: a group may read a TLS key, nobody else");
        }
        let missing = read(&directory.path().join("nothing")).expect_err("not there");
        assert!(missing.what.contains("cannot be read"), "{missing}");
        write(&path, "x".repeat(5000)).expect("written");
        assert!(with(0o600).0.expect_err("too long").what.contains("4096 bytes"));
    }

    #[test]
    fn users_come_by_name_or_number_and_root_is_none() {
        let names = Names {
            passwd: "root:x:0:0::/root:/bin/sh\nmoim:x:990:980::/nonexistent:/usr/sbin/nologin\n"
                .into(),
            group: "root:x:0:\nmoim:x:980:\nssl-cert:x:110:ada,moim\nother:x:7:moim2\n".into(),
        };
        let ids = |text: &str| {
            let ids = text.parse::<RunAs>().and_then(|user| user.ids(&names))?;
            let groups: Vec<u32> = ids.groups.iter().map(|group| group.as_raw()).collect();
            Ok::<_, String>((ids.user.as_raw(), ids.group.as_raw(), groups))
        };
        assert_eq!(ids("moim"), Ok((990, 980, vec![980, 110])));
        assert_eq!(ids("moim:other"), Ok((990, 7, vec![7, 110])));
        assert_eq!(ids("1234"), Ok((1234, 1234, vec![1234])));
        assert_eq!(ids("1234:ssl-cert"), Ok((1234, 110, vec![110])));
        assert_eq!(ids("1234:99"), Ok((1234, 99, vec![99])));
        assert!(ids("mo").unwrap_err().contains("/etc/passwd has no mo;"));
        assert!(ids("1:nobody").unwrap_err().contains("/etc/group has no nobody;"));
        for wrong in ["", "a b", ":", "a:", ":b", "a:b:c"] {
            assert!(wrong.parse::<RunAs>().is_err(), "{wrong:?}");
        }
        let root: RunAs = "0:1".parse().expect("numbers");
        assert!(root.take_on().unwrap_err().contains("run_as is root"));
    }
}
