//! Servers of others that a study puts beside moim: each is started for a session, on the CPUs that moim's own has.

use super::name::Name;
use super::pair::Pair;
use crate::base::{Url, http};
use crate::clients::seat::Adapter;
use crate::clients::{canary, livekit_keys};
use crate::run::{OwnServer, Ready, free_port};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

/// A binary has so long to say its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// Plugins and transports of Janus that a study has no use for.
const UNUSED_PLUGINS: [&str; 10] = [
    "echotest",
    "nosip",
    "recordplay",
    "sip",
    "streaming",
    "textroom",
    "videocall",
    "voicemail",
    "duktape",
    "lua",
];
const UNUSED_TRANSPORTS: [&str; 5] = ["http", "pfunix", "rabbitmq", "mqtt", "nanomsg"];

/// A kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Janus,
    LiveKit,
    SocketCluster,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Janus, Self::LiveKit, Self::SocketCluster];

    fn adapter(self) -> Adapter {
        match self {
            Self::Janus => Adapter::Janus,
            Self::LiveKit => Adapter::LiveKit,
            Self::SocketCluster => Adapter::SocketCluster,
        }
    }

    /// The word of the command line: that of its adapter.
    fn word(self) -> &'static str {
        self.adapter().name()
    }

    /// As tables call it.
    fn name(self) -> &'static str {
        match self {
            Self::Janus => "Janus",
            Self::LiveKit => "LiveKit",
            Self::SocketCluster => "SocketCluster",
        }
    }

    /// The studies whose rooms or sockets it has.
    fn studies(self) -> &'static [Name] {
        match self {
            Self::Janus => &[Name::Sfu, Name::AudioRoom],
            Self::LiveKit => &[Name::Sfu],
            Self::SocketCluster => &[Name::Sockets],
        }
    }

    /// The binary to look for on PATH; a script has no such name.
    fn binary(self) -> Option<&'static str> {
        match self {
            Self::Janus => Some("janus"),
            Self::LiveKit => Some("livekit-server"),
            Self::SocketCluster => None,
        }
    }

    /// Where to get it.
    fn cure(self) -> &'static str {
        match self {
            Self::Janus => "apt-get install --no-install-recommends janus",
            Self::LiveKit => "take livekit-server from github.com/livekit/livekit/releases",
            Self::SocketCluster => "give the server's script, such as scripts/socketcluster.mjs",
        }
    }
}

/// A server that stands beside moim, and what runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beside {
    kind: Kind,
    /// Its binary or script; none: the binary on PATH.
    file: Option<PathBuf>,
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.word())?;
        self.file.as_ref().map_or(Ok(()), |file| write!(f, "={}", file.display()))
    }
}

impl Beside {
    /// Reads `SERVER` or `SERVER=FILE` of the command line.
    ///
    /// # Errors
    /// A sentence that names those there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (word, file) = match text.split_once('=') {
            Some((word, file)) => (word, Some(PathBuf::from(file))),
            None => (text, None),
        };
        let kind = Kind::ALL.into_iter().find(|kind| kind.word() == word);
        let kind = kind.ok_or("the servers are janus, livekit and socketcluster")?;
        Ok(Self { kind, file })
    }

    /// Its word.
    pub(super) fn word(&self) -> &'static str {
        self.kind.word()
    }

    /// Why it cannot stand beside moim in a study, and what helps.
    pub(super) fn fault(&self, study: Name) -> Option<String> {
        let studies = self.kind.studies();
        if !studies.contains(&study) {
            let of: Vec<&str> = studies.iter().map(|name| name.as_str()).collect();
            let (of, name) = (of.join("|"), study.as_str());
            return Some(format!("--beside {self} is for `moim study {of}`, not for {name}"));
        }
        self.program().err()
    }

    /// The file that runs it.
    fn program(&self) -> Result<PathBuf, String> {
        let cure = self.kind.cure();
        if let Some(file) = &self.file {
            let none = || format!("--beside {self}: there is no such file; {cure}");
            let file = std::path::absolute(file).ok().filter(|file| file.is_file());
            return file.ok_or_else(none);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = self.kind.binary().and_then(|name| canary::find(name, &path));
        let word = self.kind.word();
        found.ok_or_else(|| {
            format!("--beside {word} finds no server: {cure}, and write `--beside {word}=FILE`")
        })
    }

    /// Starts it on some CPUs and waits until it answers; its settings and its output go into `dir`.
    ///
    /// # Errors
    /// A sentence with what is missing, or with the end of its output.
    pub(super) async fn start(&self, cpus: &[usize], dir: &Path) -> Result<Running, String> {
        let name = self.kind.name();
        self.try_start(cpus, dir)
            .await
            .map_err(|error| format!("the {name} server could not be started: {error}"))
    }

    async fn try_start(&self, cpus: &[usize], dir: &Path) -> io::Result<Running> {
        let program = self.program().map_err(io::Error::other)?;
        let mut url = Url { host: "127.0.0.1".into(), port: free_port()? };
        let (mut address, mut ready, mut version) = (None, Ready::Listens, String::new());
        let mut command = Command::new(&program);
        match self.kind {
            Kind::Janus => {
                version = said_by(&program).await?;
                // Janus gathers no candidate of a loopback.
                let own = Pair::new().await.map_err(io::Error::other)?;
                url.host = own.near_address();
                let settings = janus_settings(&url, dir)?;
                command.arg("-F").arg(settings);
                address = Some(own);
            }
            Kind::LiveKit => {
                version = said_by(&program).await?;
                let file = dir.join("livekit.yaml");
                fs::write(&file, livekit_settings(url.port)?)?;
                command.arg("--config").arg(file);
            }
            Kind::SocketCluster => {
                ready = Ready::Healthy;
                command = Command::new("node");
                command.arg(&program).arg(url.port.to_string());
            }
        }
        let log = dir.join(format!("{}.log", self.kind.word()));
        let server = OwnServer::run(command, (url, ready), cpus, &log).await?;
        if ready == Ready::Healthy {
            version = http::get(&server.url, "/healthz", Duration::from_secs(5)).await?;
        }
        let (kind, version) = (self.kind, version.trim().to_owned());
        Ok(Running { server, kind, version, _address: address })
    }
}

/// A server that stands beside moim, for one session.
#[derive(Debug)]
pub(super) struct Running {
    server: OwnServer,
    kind: Kind,
    /// What it says of itself: its version and what runs it.
    pub version: String,
    _address: Option<Pair>,
}

impl Running {
    /// As tables call it, with its version.
    pub fn name(&self) -> String {
        let mut number = self.version.split([',', ' ', '(', ')']);
        let number = number.find(|word| word.contains('.')).unwrap_or(&self.version);
        format!("{} {number}", self.kind.name())
    }

    /// Its key among the versions of what took part.
    pub fn program(&self) -> String {
        format!("{}-server", self.kind.word())
    }

    /// The line of a scenario that tests it.
    pub fn target(&self) -> String {
        let (adapter, at) = (self.kind.word(), self.server.url.authority());
        format!("target: {{ adapter: {adapter}, url: \"ws://{at}\" }}\n")
    }

    /// Ends it.
    pub async fn stop(mut self) {
        self.server.stop().await;
    }
}

/// The first line that a binary says of its version.
async fn said_by(program: &Path) -> io::Result<String> {
    let mut command = Command::new(program);
    let asked = command.arg("--version").stdin(Stdio::null()).kill_on_drop(true).output();
    let told = |error: io::Error| io::Error::other(format!("{}: {error}", program.display()));
    let no_version = || told(io::Error::other("it says no version by --version"));
    let output = timeout(VERSION_TIMEOUT, asked).await.map_err(|_| no_version())?.map_err(told)?;
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said.lines().next().filter(|line| line.contains('.'));
    line.map(str::to_owned).ok_or_else(no_version)
}

/// Settings of a Janus with a WebSocket, VideoRoom, AudioBridge and nothing else; the directory they are in.
fn janus_settings(url: &Url, dir: &Path) -> io::Result<PathBuf> {
    let dir = dir.join("janus");
    fs::create_dir_all(&dir)?;
    let libraries = |names: &[&str]| {
        names.iter().map(|name| format!("libjanus_{name}.so")).collect::<Vec<_>>().join(",")
    };
    let (plugins, transports) = (libraries(&UNUSED_PLUGINS), libraries(&UNUSED_TRANSPORTS));
    let Url { host, port } = url;
    let main = format!(
        "general: {{ configs_folder = \"{}\", debug_level = 3, debug_colors = false }}\nmedia: {{ rtp_port_range = \
         \"20000-40000\" }}\nnat: {{ ice_enforce_list = \"{host}\", ice_lite = false, full_trickle = false }}\nplugins: {{ \
         disable = \"{plugins}\" }}\ntransports: {{ disable = \"{transports}\" }}\nevents: {{ broadcast = false }}\n",
        dir.display()
    );
    let socket = format!(
        "general: {{ json = \"compact\", ws = true, ws_ip = \"{host}\", ws_port = {port}, wss = false }}\nadmin: {{ admin_ws = \
         false, admin_wss = false }}\n"
    );
    let files = [
        ("janus.jcfg", main.as_str()),
        ("janus.transport.websockets.jcfg", &socket),
        ("janus.plugin.videoroom.jcfg", "general: { }\n"),
        ("janus.plugin.audiobridge.jcfg", "general: { }\n"),
    ];
    files.iter().try_for_each(|(name, text)| fs::write(dir.join(name), text))?;
    Ok(dir)
}

/// Settings of a LiveKit that is on the loopback alone.
fn livekit_settings(port: u16) -> io::Result<String> {
    Ok(format!(
        "port: {port}\nbind_addresses: [\"127.0.0.1\"]\nkeys: {}\nlogging: {{ level: warn }}\nrtc:\n  udp_port: {}\n  tcp_port: \
         {}\n  node_ip: 127.0.0.1\n  use_external_ip: false\n  enable_loopback_candidate: true\n  stun_servers: []\n",
        livekit_keys(),
        free_port()?,
        free_port()?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/socketcluster.mjs");

    fn beside(text: &str) -> Beside {
        Beside::parse(text).expect("a server")
    }

    #[test]
    fn a_server_is_named_with_the_file_that_runs_it() {
        for text in ["janus", "livekit=/opt/livekit-server", "socketcluster=x.mjs"] {
            assert_eq!(beside(text).to_string(), text);
        }
        let unknown = Beside::parse("jitsi").expect_err("unknown");
        assert!(unknown.contains("livekit"), "{unknown}");
    }

    #[test]
    fn each_server_is_for_the_studies_whose_rooms_it_has() {
        let script = format!("socketcluster={SCRIPT}");
        assert_eq!(beside(&script).fault(Name::Sockets), None);
        for (text, study, of) in [
            (script.as_str(), Name::Sfu, "moim study sockets"),
            ("janus", Name::MeshVsSfu, "moim study sfu|audio-room"),
            ("livekit", Name::AudioRoom, "moim study sfu`"),
        ] {
            let why = beside(text).fault(study).expect("another study");
            assert!(why.contains(of), "{why}");
        }
    }

    #[test]
    fn a_server_that_is_not_there_says_where_to_get_it() {
        let missing = beside("janus=/nowhere/janus").fault(Name::Sfu).expect("missing");
        assert!(missing.contains("/nowhere/janus") && missing.contains("apt-get"), "{missing}");
        let script = beside("socketcluster").fault(Name::Sockets).expect("a script is needed");
        assert!(script.contains("scripts/") && script.contains("=FILE"), "{script}");
    }
}
