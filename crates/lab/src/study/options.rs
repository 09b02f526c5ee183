//! Which study, and how.

use std::path::PathBuf;

/// Which study.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// An SFU on a small box.
    Sfu,
    /// Realtime sockets.
    Sockets,
    /// Mesh against SFU.
    MeshVsSfu,
    /// An audio-only room.
    AudioRoom,
}

impl Name {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Sfu, Self::Sockets, Self::MeshVsSfu, Self::AudioRoom];

    /// The word of the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sfu => "sfu",
            Self::Sockets => "sockets",
            Self::MeshVsSfu => "mesh-vs-sfu",
            Self::AudioRoom => "audio-room",
        }
    }

    /// Reads the word of the command line.
    ///
    /// # Errors
    /// A sentence that names those there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|name| name.as_str() == text);
        known.ok_or_else(|| "the studies are sfu, sockets, mesh-vs-sfu and audio-room".into())
    }
}

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
    /// Study B: a script that runs a SocketCluster server on the port it is given, to put beside ours.
    pub socketcluster: Option<PathBuf>,
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
        words.extend(
            self.socketcluster.iter().map(|path| format!("--socketcluster {}", path.display())),
        );
        words.join(" ")
    }

    /// What is wrong with them, and what helps.
    pub fn fault(&self) -> Option<String> {
        let of_one = [
            (self.like_the_study, Name::AudioRoom, "--like-the-study"),
            (self.profile, Name::Sfu, "--profile"),
            (self.socketcluster.is_some(), Name::Sockets, "--socketcluster"),
        ];
        if let Some((_, of, option)) = of_one.iter().find(|(on, of, _)| *on && *of != self.name) {
            let (of, name) = (of.as_str(), self.name.as_str());
            return Some(format!("{option} is for `moim study {of}`, not for {name}"));
        }
        let script = self.socketcluster.as_ref()?;
        let told = "give the server's script, such as scripts/socketcluster.mjs";
        (!script.is_file())
            .then(|| format!("--socketcluster {}: there is no such file; {told}", script.display()))
    }
}
