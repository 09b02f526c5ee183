//! The server's settings: from `--config moim.yaml`, or the development mode's.

mod limits;

pub use limits::Limits;

use crate::auth::{Guests, SECRET_CHARS, Secret};
use crate::faults::Faults;
use crate::private::{self, RunAs};
use crate::proxies::Network;
use engine::room::MixPacket;
use limits::decode_limits;
use settings::{
    Problems, Section, either, ip_address, list_of, map_of, number, one_of, one_or_many, parsed,
    section, socket_address, text,
};
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use tracing_subscriber::EnvFilter;

/// Everything that can be set. The doc of each field is the doc of its key.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Started without a file: loopback only, and browsers only from pages of loopback hosts.
    pub development: bool,
    /// The file that these settings were read from: SIGHUP reads it again.
    pub file: Option<PathBuf>,
    /// `http`: pages, sockets, metrics.
    pub http: HttpConfig,
    /// `media`: UDP and TCP of the media threads.
    pub media: MediaConfig,
    /// `tls`: HTTPS instead of HTTP.
    pub tls: Option<TlsConfig>,
    /// `hosts`: names that clients reach this server by, besides IP addresses and `localhost`.
    pub hosts: Vec<String>,
    /// `admin`: who may see metrics and console.
    pub admin: AdminConfig,
    /// `origins`: whose pages may open sockets, besides those of the server's own host:
    /// `https://call.example.org`.
    pub origins: Vec<String>,
    /// `keys`: the names of keys that tokens are signed with, and their secrets.
    pub keys: Vec<(String, Secret)>,
    /// `audience`: what the claim `aud` of every token must name.
    pub audience: Option<String>,
    /// `guests`: what people without a token may do: `none`, `join` or `all`. Default: `none`
    /// where there are keys, else `join`; in development mode `all`.
    pub guests: Guests,
    /// `run_as`: the user that the process becomes once its ports are bound.
    pub run_as: Option<RunAs>,
    /// `limits`: bounds that keep one client, or too many, from harming the rest.
    pub limits: Limits,
    /// `mix`.
    pub mix: MixConfig,
    /// `log`.
    pub log: LogConfig,
    /// Faults for tests, from the command line alone, and in development mode or `for_tests` only.
    pub faults: Faults,
    /// Whether the server hosts nobody, as the command line says: faults may be made with settings.
    pub for_tests: bool,
}

/// `admin`: `/metrics` and `/console`. With neither, nobody sees them (but in development mode).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AdminConfig {
    /// `bind`: the only addresses that they are answered at. One that is also in `http.bind` is that listener.
    pub bind: Vec<SocketAddr>,
    /// `token` or `token_file`: what a request must show.
    pub token: Option<Secret>,
}

/// `http`.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpConfig {
    /// `bind`: one address or a list. Default 127.0.0.1:7880. Port 0 takes a free one.
    pub bind: Vec<SocketAddr>,
    /// `base_path`: the path that pages, sockets and API begin with: `/calls/`. Default `/`.
    pub base_path: String,
    /// `trusted_proxies`: addresses and networks of reverse proxies, whose word is taken for where clients come from.
    pub trusted_proxies: Vec<Network>,
}

/// `media`.
#[derive(Debug, Clone, PartialEq)]
pub struct MediaConfig {
    /// `bind`: one local IPv4 address, one IPv6 address, or both; each becomes a candidate unless
    /// `advertise` says otherwise. Default 127.0.0.1.
    pub bind: Vec<IpAddr>,
    /// `port` of the first shard, UDP and TCP; shard N takes `port + N`. 0 takes free ones.
    /// Default 7882.
    pub port: u16,
    /// `shards`: media threads, each with a control thread for SDP, ICE and DTLS. Default 1.
    pub shards: usize,
    /// `keep_together`: so many people of a room share a shard; those who come after them go to where the
    /// fewest people are. 1 spreads every room. Default 56.
    pub keep_together: usize,
    /// `start_kbps`: what the path to a participant is taken to carry until their feedback tells more. Default 400.
    pub start_kbps: u32,
    /// `advertise`: addresses that go into candidates instead of the bound ones, where the
    /// server is behind a one-to-one NAT or bound to 0.0.0.0.
    pub advertise: Vec<IpAddr>,
}

/// `tls`: PEM files, relative to the settings' own directory.
#[derive(Debug, Clone, PartialEq)]
pub struct TlsConfig {
    /// `cert`: the certificate chain.
    pub cert: PathBuf,
    /// `key`: its private key.
    pub key: PathBuf,
}

/// `mix`: rooms whose sound is mixed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MixConfig {
    /// True for `hear: everyone`: all are heard who are loud enough. False for `loudest`: the `limits.loudest` loudest are.
    pub everyone: bool,
    /// `packet`: how long the packets are for listeners who are not heard: `20ms`, `40ms`, `60ms` or `auto` (20 ms up to 200
    /// people, 40 ms up to 999, then 60 ms). Fewer packets cost less, and are as much later.
    pub packet: MixPacket,
}

/// `log`.
#[derive(Debug, Clone, PartialEq)]
pub struct LogConfig {
    /// `format`: `text` or `json`.
    pub format: LogFormat,
    /// `level`: `error`, `warn`, `info`, `debug`, `trace`, or directives by module such as
    /// `info,server::socket=debug`.
    pub level: String,
}

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// A JSON object a line.
    Json,
}

impl Default for MixConfig {
    fn default() -> Self {
        Self { everyone: false, packet: MixPacket::Auto }
    }
}

impl Default for MediaConfig {
    fn default() -> Self {
        let bind = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let start_kbps = (engine::limits::DOWNLINK_START_BPS / 1000) as u32;
        let advertise = Vec::new();
        Self { bind, port: 7882, shards: 1, keep_together: 56, start_kbps, advertise }
    }
}

impl Config {
    /// What holds without a file: this machine only, no TLS.
    pub fn development() -> Self {
        Self {
            development: true,
            file: None,
            http: HttpConfig {
                bind: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 7880))],
                base_path: "/".into(),
                trusted_proxies: Vec::new(),
            },
            media: MediaConfig::default(),
            tls: None,
            hosts: Vec::new(),
            admin: AdminConfig::default(),
            origins: Vec::new(),
            keys: Vec::new(),
            audience: None,
            guests: Guests::All,
            run_as: None,
            limits: Limits::default(),
            mix: MixConfig::default(),
            log: LogConfig { format: LogFormat::Text, level: "info".into() },
            faults: Faults::default(),
            for_tests: false,
        }
    }

    /// The settings of a file, or [`Self::development`] without one.
    ///
    /// # Errors
    /// All problems of the file at once; the command line exits with 104.
    pub fn load(path: Option<&Path>) -> Result<Self, Problems> {
        match path {
            None => Ok(Self::development()),
            Some(path) => {
                let directory = path.parent().unwrap_or(Path::new(""));
                let mut config =
                    settings::read_file(path, |root| decode(root, directory, Some(path)))?;
                config.file = Some(path.to_owned());
                Ok(config)
            }
        }
    }

    /// The settings in a text; `source` names it in messages, TLS files are sought relative to
    /// `directory`.
    ///
    /// # Errors
    /// All problems at once.
    pub fn parse(text: &str, source: &str, directory: &Path) -> Result<Self, Problems> {
        settings::read(text, source, |root| decode(root, directory, None))
    }
}

fn decode(root: &mut Section<'_>, directory: &Path, file: Option<&Path>) -> Option<Config> {
    let default = Config::development();
    // Whether a secret stands in the settings themselves.
    let inline = Cell::new(false);
    let http = root.section("http", |http| HttpConfig {
        bind: http.read("bind", one_or_many(socket_address(), 16)).or(default.http.bind),
        base_path: http.read("base_path", base_path()).or(default.http.base_path),
        trusted_proxies: http
            .read("trusted_proxies", one_or_many(network(), 256))
            .or_else(Vec::new),
    });
    let media = root.section("media", decode_media);
    let tls = if root.has("tls") {
        root.section("tls", |tls| decode_tls(tls, directory))
    } else {
        // So that it is among the valid keys.
        root.section("tls", |_| None)
    };
    let hosts = root.read("hosts", list_of(host(), 0..=100)).or_else(Vec::new);
    let admin = root.section("admin", |admin| decode_admin(admin, directory, &inline));
    let origins = root.read("origins", list_of(origin(), 0..=100)).or_else(Vec::new);
    let keys = root.read("keys", map_of(text(1..=64), key(directory, &inline))).or_else(Vec::new);
    let audience = root.read("audience", text(1..=256)).optional();
    let guests = [("none", Guests::None), ("join", Guests::Join), ("all", Guests::All)];
    let guests = root.read("guests", one_of(&guests)).optional();
    let without_keys = if keys.is_empty() { Guests::Join } else { Guests::None };
    let guests = guests.unwrap_or(without_keys);
    let run_as = root.read("run_as", run_as()).optional();
    let limits = root.section("limits", decode_limits);
    let mix = root.section("mix", |mix| MixConfig {
        everyone: mix
            .read("hear", one_of(&[("loudest", false), ("everyone", true)]))
            .or(default.mix.everyone),
        packet: mix.read("packet", one_of(MIX_PACKETS)).or(default.mix.packet),
    });
    let log = root.section("log", |log| LogConfig {
        format: log
            .read("format", one_of(&[("text", LogFormat::Text), ("json", LogFormat::Json)]))
            .or(default.log.format),
        level: log.read("level", log_level()).or(default.log.level),
    });
    if inline.get()
        && let Some(Err(problem)) = file.map(private::check_settings)
    {
        let at = if root.has("keys") { "keys" } else { "admin" };
        let cure = format!(
            "{}; or write the secret into a file of its own: secret_file, token_file",
            problem.cure
        );
        root.fault(at, format!("a secret stands in this file, and {}", problem.what), cure);
    }
    let faults = Faults::default();
    Some(Config {
        development: false,
        file: None,
        http,
        media,
        tls,
        hosts,
        admin,
        origins,
        keys,
        audience,
        guests,
        run_as,
        limits,
        mix,
        log,
        faults,
        for_tests: false,
    })
}

const MIX_PACKETS: &[(&str, MixPacket)] = &[
    ("20ms", MixPacket::Ms20),
    ("40ms", MixPacket::Ms40),
    ("60ms", MixPacket::Ms60),
    ("auto", MixPacket::Auto),
];

fn decode_admin(admin: &mut Section<'_>, directory: &Path, inline: &Cell<bool>) -> AdminConfig {
    let bind = admin.read("bind", one_or_many(socket_address(), 16)).or_else(Vec::new);
    let token = admin.read("token", secret(inline)).optional();
    let from_file = admin.read("token_file", secret_file(directory)).optional();
    if token.is_some() && from_file.is_some() {
        admin.fault("token", "there is a token_file, too", "keep one of the two");
    }
    AdminConfig { bind, token: token.or(from_file) }
}

fn decode_media(media: &mut Section<'_>) -> MediaConfig {
    let default = MediaConfig::default();
    let config = MediaConfig {
        bind: media.read("bind", one_or_many(ip_address(), 16)).or(default.bind),
        port: media.read("port", number(0..=65535u16)).or(default.port),
        shards: media.read("shards", number(1..=64usize)).or(default.shards),
        keep_together: media
            .read("keep_together", number(1..=10_000usize))
            .or(default.keep_together),
        start_kbps: media.read("start_kbps", number(100..=100_000u32)).or(default.start_kbps),
        advertise: media.read("advertise", one_or_many(ip_address(), 16)).or(default.advertise),
    };
    for v6 in [false, true] {
        if config.bind.iter().filter(|address| address.is_ipv6() == v6).count() > 1 {
            let cure = "bind 0.0.0.0 or :: and list the addresses under `advertise`";
            media.fault("bind", "at most one IPv4 and one IPv6 address are taken", cure);
        }
    }
    if config.advertise.is_empty() && config.bind.iter().any(IpAddr::is_unspecified) {
        media.fault(
            "bind",
            "browsers cannot send to 0.0.0.0 or ::",
            "write `advertise: [the address that they reach]` beside it, or bind that address",
        );
    }
    if config.advertise.iter().any(IpAddr::is_unspecified) {
        let cure = "write the address that browsers reach";
        media.fault("advertise", "0.0.0.0 and :: are no destinations", cure);
    }
    if config.port != 0 && usize::from(config.port) + config.shards - 1 > 65535 {
        let what = format!("{} shards need ports up to 65535 and beyond", config.shards);
        media.fault("port", what, "write a lower port");
    }
    config
}

fn decode_tls(tls: &mut Section<'_>, directory: &Path) -> Option<TlsConfig> {
    let mut path = |key| {
        let path = directory.join(tls.read(key, text(1..=4096)).required()?);
        if let Err(error) = std::fs::File::open(&path) {
            let what = format!("{} cannot be read ({error})", path.display());
            tls.fault(key, what, "write the path of a PEM file, relative to these settings");
        } else if key == "key"
            && let Err(problem) = private::check_key(&path)
        {
            tls.fault(key, problem.what, problem.cure);
        }
        Some(path)
    };
    let (cert, key) = (path("cert"), path("key"));
    Some(TlsConfig { cert: cert?, key: key? })
}

/// A key's secret. What is wrong with it is told without it. Notes that it is `inline`.
fn secret(inline: &Cell<bool>) -> settings::Parsed<impl Fn(&str) -> Result<Secret, String>> {
    parsed(format!("a secret of {SECRET_CHARS} or more characters"), |text| {
        inline.set(true);
        Secret::new(text)
    })
}

/// The same from a file that nobody else may read.
fn secret_file(directory: &Path) -> settings::Parsed<impl Fn(&str) -> Result<Secret, String>> {
    let directory = directory.to_owned();
    let read = move |path: &str| {
        let path = directory.join(path);
        let secret = private::read(&path).map_err(|problem| problem.to_string())?;
        Secret::new(&secret).map_err(|why| format!("{}: {why}", path.display()))
    };
    parsed("the path of a file that holds it, relative to these settings", read)
}

/// A key: its secret, or where that is.
fn key(directory: &Path, inline: &Cell<bool>) -> impl settings::Shape<Value = Secret> {
    let directory = directory.to_owned();
    let mapping = section(move |key: &mut Section<'_>| {
        key.read("secret_file", secret_file(&directory)).required()
    });
    either(secret(inline), mapping)
}

/// A host as clients write it into `Host`, without a port.
fn host() -> settings::Parsed<impl Fn(&str) -> Result<String, String>> {
    parsed("a host's name without scheme and port, such as call.example.org", |text| {
        let lower = text.to_ascii_lowercase();
        let name = lower.strip_suffix('.').unwrap_or(&lower);
        let allowed = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        if name.is_empty() || name.len() > 253 || !name.chars().all(allowed) {
            return Err(format!("{text:?} is no host's name"));
        }
        Ok(name.to_owned())
    })
}

/// A path that needs no escapes anywhere, with a slash at both ends.
fn base_path() -> settings::Parsed<impl Fn(&str) -> Result<String, String>> {
    parsed("a path such as /calls/, of letters, digits and -._~", |text| {
        let inner =
            text.strip_prefix('/').ok_or_else(|| format!("{text:?} begins with no slash"))?;
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
        let fine = |part: &str| {
            !part.is_empty() && part != "." && part != ".." && part.chars().all(allowed)
        };
        match inner {
            "" if text == "/" => Ok("/".to_owned()),
            _ if text.len() <= 200 && inner.split('/').all(fine) => Ok(format!("/{inner}/")),
            _ => Err(format!("{text:?} is no path that can be used")),
        }
    })
}

/// An address, or a network in CIDR notation.
fn network() -> settings::Parsed<impl Fn(&str) -> Result<Network, String>> {
    let expected = "an address or a network, such as 127.0.0.1, 10.0.0.0/8 or fd00::/8";
    parsed(expected, |text| text.parse())
}

/// A user, and perhaps a group.
fn run_as() -> settings::Parsed<impl Fn(&str) -> Result<RunAs, String>> {
    parsed("a user such as moim, user:group, or numbers such as 1000:1000", |text| text.parse())
}

/// A page's origin as browsers send it: scheme, host, and the port unless it is the scheme's own.
fn origin() -> settings::Parsed<impl Fn(&str) -> Result<String, String>> {
    parsed("an origin, such as https://call.example.org or http://192.0.2.1:8080", |text| {
        let wrong = || format!("{text:?} is no origin");
        let lower = text.to_ascii_lowercase();
        let (scheme, host) = lower.split_once("://").ok_or_else(wrong)?;
        let default_port = match scheme {
            "http" => ":80",
            "https" => ":443",
            _ => return Err(wrong()),
        };
        let host = host.strip_suffix('/').unwrap_or(host);
        let allowed = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
        if host.is_empty() || !host.chars().all(allowed) {
            return Err(wrong());
        }
        Ok(format!("{scheme}://{}", host.strip_suffix(default_port).unwrap_or(host)))
    })
}

fn log_level() -> settings::Parsed<impl Fn(&str) -> Result<String, String>> {
    parsed("error, warn, info, debug or trace", |text| {
        // A bare word that is no level would be taken for a module's name.
        let levels = ["off", "error", "warn", "info", "debug", "trace"];
        let known = levels.contains(&text) || text.contains('=');
        match log_filter(text) {
            Some(_) if known => Ok(text.to_owned()),
            _ => Err(format!("{text:?} is no log level")),
        }
    })
}

/// What a log level or directives by module let through; none if the text is neither. Of text beyond
/// ASCII the library would cut characters in two, and panic.
pub(crate) fn log_filter(text: &str) -> Option<EnvFilter> {
    text.is_ascii().then(|| EnvFilter::try_new(text).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, "moim.yaml", Path::new("")).map_err(|problems| problems.to_string())
    }

    #[test]
    fn a_log_level_with_other_characters_than_ascii_is_refused() {
        let text = "log: { level: \"info,server=\u{fffd} [{\u{fffd}\u{fffd}\" }";
        assert!(parse(text).unwrap_err().contains("is no log level"));
    }

    #[test]
    fn development_is_loopback_only() {
        let config = Config::load(None).unwrap();
        assert!(config.development);
        assert!(config.http.bind.iter().all(|address| address.ip().is_loopback()));
        assert!(config.media.bind.iter().all(IpAddr::is_loopback));
    }

    #[test]
    fn an_empty_file_has_the_same_values() {
        let config = parse("# nothing yet\n").unwrap();
        let guests = Guests::Join;
        assert_eq!(config, Config { development: false, guests, ..Config::development() });
    }

    #[test]
    fn every_key_is_read() {
        let config = parse(
            r#"
http: { bind: ["[::]:443", "0.0.0.0:443"], base_path: /a/calls, trusted_proxies: [127.0.0.1, 10.0.0.0/8, "fd00::/8"] }
media: { bind: [0.0.0.0, "::"], port: 9000, shards: 4, keep_together: 3, start_kbps: 900,
  advertise: [192.0.2.7, 2001:db8::7] }
origins: ["HTTPS://Call.Example.org:443/", "http://10.0.0.1:8080"]
limits: { participants_per_room: 20, roster: 12, rooms: 3, rooms_per_address: 13, rooms_per_identity: 14,
  seats_per_address: 15, seats_per_identity: 16, sessions_per_identity: 5, audio_slots: 2, video_slots: 5, sdp_bytes: 64KiB,
  sockets: 100, connections_per_address: 6, requests_per_second: 9, outbox_bytes: 128KiB, channels_per_socket: 7,
  channel_subscribers: 8, message_bytes: 2KiB }
keys: { ours: "0123456789abcdef0123456789abcdef", theirs: "0123456789abcdef0123456789abcdeg" }
hosts: [Call.Example.org., sfu-1]
admin: { bind: "127.0.0.1:9100", token: "0123456789abcdef0123456789abcdef" }
audience: call.example.org
run_as: "moim:ssl-cert"
log: { format: json, level: "info,server=debug" }
mix: { hear: everyone, packet: 60ms }
"#,
        )
        .unwrap();
        assert_eq!(config.http.bind[0], "[::]:443".parse().unwrap());
        let proxies = ["127.0.0.1/32", "10.0.0.0/8", "fd00::/8"].map(|text| text.parse().unwrap());
        assert_eq!(config.http.trusted_proxies, proxies);
        assert_eq!(config.http.base_path, "/a/calls/");
        assert_eq!(config.media.advertise[1], "2001:db8::7".parse::<IpAddr>().unwrap());
        let media = &config.media;
        assert_eq!((media.port, media.shards, media.keep_together), (9000, 4, 3));
        assert_eq!(media.start_kbps, 900);
        assert_eq!(config.origins, ["https://call.example.org", "http://10.0.0.1:8080"]);
        assert_eq!(
            config.limits,
            Limits {
                participants_per_room: 20,
                participants_per_mesh: 8,
                roster: 12,
                loudest: 3,
                rooms: 3,
                rooms_per_address: 13,
                rooms_per_identity: 14,
                seats_per_address: 15,
                seats_per_identity: 16,
                sessions_per_identity: 5,
                audio_slots: 2,
                video_slots: 5,
                sdp_bytes: 65536,
                sockets: 100,
                connections_per_address: 6,
                requests_per_second: 9,
                outbox_bytes: 131_072,
                channels_per_socket: 7,
                channel_subscribers: 8,
                message_bytes: 2048,
            }
        );
        assert_eq!(config.mix, MixConfig { everyone: true, packet: MixPacket::Ms60 });
        let names: Vec<&str> = config.keys.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, config.guests), (vec!["ours", "theirs"], Guests::None));
        assert_eq!(config.hosts, ["call.example.org", "sfu-1"]);
        assert_eq!(config.admin.bind, ["127.0.0.1:9100".parse().unwrap()]);
        assert!(config.admin.token.is_some());
        assert_eq!(config.audience.as_deref(), Some("call.example.org"));
        assert_eq!(config.run_as.map(|user| user.to_string()).as_deref(), Some("moim:ssl-cert"));
        assert_eq!(config.log.format, LogFormat::Json);
        assert_eq!(config.log.level, "info,server=debug");
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let told = parse(
            "http: { bind: localhost, trusted_proxies: [10.0.0.1/8] }\nmedia: { bind: 0.0.0.0, prot: 1 }\ntls: { cert: no.pem }\n\
             origins: [call.example.org]\nlimits: { rooms: 0 }\nlog: { level: loud }\nlimts: {}\n\
             mix: { packet: 30ms }\n",
        )
        .unwrap_err();
        for expected in [
            "moim.yaml:1:15 http.bind: \"localhost\" is no IP address with a port",
            "http.trusted_proxies[0]: \"10.0.0.1/8\" has more than 8 bits: write 10.0.0.0/8",
            "moim.yaml:2:16 media.bind: browsers cannot send to 0.0.0.0",
            "moim.yaml:2:25 media.prot: unknown key; did you mean \"port\"?",
            "moim.yaml:3:14 tls.cert: no.pem cannot be read (",
            "tls.key: the key is missing",
            "moim.yaml:4:11 origins[0]: \"call.example.org\" is no origin",
            "moim.yaml:5:18 limits.rooms: 0 is out of range",
            "moim.yaml:6:15 log.level: \"loud\" is no log level",
            "moim.yaml:8:16 mix.packet: \"30ms\" is not known here; did you mean \"20ms\"?",
            "moim.yaml:7:1 limts: unknown key; did you mean \"limits\"?",
        ] {
            assert!(told.contains(expected), "{expected}\nis missing in\n{told}");
        }
        assert_eq!(told.lines().count(), 11, "{told}");
        let told = parse("media: { bind: [127.0.0.1, 127.0.0.2], port: 65535, shards: 2 }\n");
        let told = told.unwrap_err();
        assert!(told.contains("media.bind: at most one IPv4 and one IPv6 address"), "{told}");
        assert!(told.contains("media.port: 2 shards need ports up to 65535"), "{told}");
    }

    #[test]
    fn keys_are_checked_and_never_told() {
        let told = parse("keys: { ours: too-short-secret }\nguests: some\n").unwrap_err();
        assert!(told.contains("keys.ours: the secret has 16 of at least 32"), "{told}");
        assert!(told.contains("guests: "), "{told}");
        assert!(!told.contains("too-short-secret"), "{told}");
        let config = parse(&format!("keys: {{ ours: {} }}\nguests: join", "s3cret".repeat(6)));
        let config = config.unwrap();
        assert_eq!(config.guests, Guests::Join);
        assert!(!format!("{config:?}").contains("s3cret"));
    }

    #[test]
    fn secrets_come_from_files_that_nobody_else_may_read() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str, mode| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        write("ours", "0123456789abcdef0123456789abcdef\n", 0o600);
        write("open", "0123456789abcdef0123456789abcdef\n", 0o644);
        write("short", "s3cret", 0o600);
        write("tls.pem", "x", 0o644);
        let parse = |text: &str| {
            let parsed = Config::parse(text, "moim.yaml", directory.path());
            parsed.map_err(|problems| problems.to_string())
        };
        let files = "keys: { ours: { secret_file: ours } }\nadmin: { token_file: ours }\n";
        let inline = "keys: { ours: 0123456789abcdef0123456789abcdef }\n\
                      admin: { token: 0123456789abcdef0123456789abcdef }\n";
        assert_eq!(parse(files).unwrap(), parse(inline).unwrap());
        let told = parse(
            "keys: { a: { secret_file: open }, b: { secret_file: short }, c: { secret_file: none }, d: {} }\n\
             admin: { token: 0123456789abcdef0123456789abcdef, token_file: ours }\n\
             tls: { cert: tls.pem, key: tls.pem }\nhosts: [\"https://a.b\"]\nrun_as: a b\n",
        )
        .unwrap_err();
        for expected in [
            "/open is open to everybody on this machine (mode 0644); run `chmod 600 ",
            "/short: the secret has 6 of at least 32 characters",
            "/none cannot be read (",
            "keys.d.secret_file: the key is missing",
            "admin.token: ",
            "/tls.pem is open to everybody on this machine (mode 0644)",
            "\"https://a.b\" is no host's name",
            "\"a b\" is no user",
        ] {
            assert!(told.contains(expected), "{expected}\nis missing in\n{told}");
        }
        assert!(!told.contains("s3cret") && !told.contains("0123456789abcdef"), "{told}");
    }

    #[test]
    fn a_base_path_needs_no_escapes() {
        let path = |text: &str| parse(&format!("http: {{ base_path: {text:?} }}"));
        for (text, is) in [("/", "/"), ("/calls", "/calls/"), ("/a/b-1.2_~/", "/a/b-1.2_~/")] {
            assert_eq!(path(text).unwrap().http.base_path, is);
        }
        for wrong in [
            "calls/", "", "//", "/a//b", "/a/../b", "/./", "/a b", "/{x}", "/a?b", "/%20",
            "/\u{e9}",
        ] {
            assert!(path(wrong).unwrap_err().contains("write a path such as /calls/"), "{wrong}");
        }
    }

    #[test]
    fn settings_with_a_secret_in_them_are_their_owners_alone() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let secret = "0123456789abcdef0123456789abcdef";
        let load = |text: &str, mode| {
            let path = directory.path().join("moim.yaml");
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Config::load(Some(&path)).map(drop).map_err(|problems| problems.to_string())
        };
        let inline =
            [format!("keys: {{ ours: {secret} }}"), format!("admin: {{ token: {secret} }}")];
        for text in inline {
            for mode in [0o600, 0o400] {
                assert_eq!(load(&text, mode), Ok(()), "{mode:o}");
            }
            for mode in [0o644, 0o640, 0o604] {
                let told = load(&text, mode).unwrap_err();
                assert!(told.contains("moim.yaml:1") && told.contains("run `chmod 600 "), "{told}");
                assert!(!told.contains(secret), "{told}");
            }
        }
        let path = directory.path().join("ours");
        std::fs::write(&path, secret).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let files = "keys: { ours: { secret_file: ours } }\nadmin: { token_file: ours }\n";
        assert_eq!(load(files, 0o644), Ok(()), "it tells no secret");
        assert_eq!(load("guests: join\n", 0o644), Ok(()));
    }

    #[test]
    fn a_missing_file_is_told() {
        let path = Path::new("/nonexistent/moim.yaml");
        let told = Config::load(Some(path)).unwrap_err().to_string();
        assert!(told.contains("/nonexistent/moim.yaml: the file cannot be read"), "{told}");
    }
}
