//! Which study, and how.

use super::beside::Beside;
use super::name::Name;
use std::path::PathBuf;

/// What `moim study` is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StudyOptions {
    /// Which study.
    pub name: Name,
    /// Small and short, to see that all of it works; its figures mean little.
    pub quick: bool,
    /// Study D with the lengths of the study's own timeline: two hours.
    pub like_the_study: bool,
    /// Where the server's media thread spends its time is shown, too: of the study of the SFU.
    pub profile: bool,
    /// Where the record goes, in a directory of its own.
    pub runs_dir: PathBuf,
    /// Servers of others that do the same on the same CPUs.
    pub beside: Vec<Beside>,
    /// The binary whose `serve` is started; none: this one.
    pub server_exe: Option<PathBuf>,
}

impl StudyOptions {
    /// The command line that asks for the same.
    pub fn command(&self) -> String {
        let mut words = vec!["moim study".to_owned(), self.name.as_str().into()];
        let flags = [
            (self.quick, "--quick"),
            (self.like_the_study, "--like-the-study"),
            (self.profile, "--profile"),
        ];
        words.extend(flags.iter().filter(|(on, _)| *on).map(|(_, flag)| (*flag).to_owned()));
        words.extend(self.beside.iter().map(|one| format!("--beside {one}")));
        words.join(" ")
    }

    /// What is wrong with them, and what helps.
    pub fn fault(&self) -> Option<String> {
        let of_one = [
            (self.like_the_study, Name::AudioRoom, "--like-the-study"),
            (self.profile, Name::Sfu, "--profile"),
        ];
        if let Some((_, of, option)) = of_one.iter().find(|(on, of, _)| *on && *of != self.name) {
            let (of, name) = (of.as_str(), self.name.as_str());
            return Some(format!("{option} is for `moim study {of}`, not for {name}"));
        }
        let twice = |(at, one): (usize, &Beside)| {
            let same = self.beside[..at].iter().any(|other| other.word() == one.word());
            same.then(|| format!("--beside {}: give it once", one.word()))
        };
        let twice = self.beside.iter().enumerate().find_map(twice);
        twice.or_else(|| self.beside.iter().find_map(|one| one.fault(self.name)))
    }
}
