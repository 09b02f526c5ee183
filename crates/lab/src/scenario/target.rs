//! What is tested: a server that runs, or one of our own.

use crate::base::Url;
use crate::clients::seat::Adapter;
use crate::clients::whip::{NAME, Paths};
use crate::record::LinkLimit;
use serde_json::json;
use settings::{Section, boolean, number, one_of, one_or_many, parsed, section, text};

/// What is tested.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// A server that runs already.
    Running(Url),
    /// A server of our own, started for the run.
    Serve(ServeOptions),
}

/// How a server of our own is started.
#[derive(Debug, Clone, PartialEq)]
pub struct ServeOptions {
    /// Media threads.
    pub shards: u16,
    /// So many people of a room share a shard; none: the server's default.
    pub keep_together: Option<u16>,
    /// Which CPUs it runs on.
    pub cpus: Cpus,
    /// Its CPU quota in cores; none: all of its CPUs.
    pub quota_cores: Option<f64>,
    /// Whether it is measured what a fixed piece of work costs on its CPUs, for [`crate::compare`]; with a quota it always is.
    pub floor: bool,
    /// What it does wrong on purpose, as `moim serve --fault` takes it.
    pub fault: Option<String>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            shards: 1,
            keep_together: None,
            cpus: Cpus::Auto,
            quota_cores: None,
            floor: false,
            fault: None,
        }
    }
}

/// How the CPUs are divided between a server of our own and the generator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cpus {
    /// Half for each; shared where there is one CPU only, or browsers, which need all.
    Auto,
    /// Both run on all.
    Shared,
    /// These for the server, the rest for the generator.
    Server(Vec<usize>),
}

/// What `target` and `serve` say.
pub(super) struct TargetSection {
    pub(super) target: Target,
    pub(super) adapter: Adapter,
    pub(super) paths: Paths,
    pub(super) link_limit: LinkLimit,
}

pub(super) fn decode(root: &mut Section<'_>) -> Option<TargetSection> {
    let running = root.read(
        "target",
        section(|target| {
            let adapter = target.read("adapter", one_of(&Adapter::ALL)).or(Adapter::Moim);
            let url = target
                .read("url", parsed(Url::EXPECTED, Url::parse).pattern("^(http|ws)://[^/?#@ ]+/?$"))
                .required();
            let paths = decode_paths(target, adapter);
            let limit = target.section("limit", |limit| LinkLimit {
                mbit_per_s: limit.read("mbit_per_s", number(0.001..=1e6)).optional(),
                packets_per_s: limit.read("packets_per_s", number(1.0..=1e9)).optional(),
            });
            let target = Target::Running(url?);
            Some(TargetSection { target, adapter, paths, link_limit: limit })
        }),
    );
    let running = running.optional();
    let serve = root.section("serve", |serve| ServeOptions {
        shards: serve.read("shards", number(1..=64)).or(1),
        keep_together: serve.read("keep_together", number(1..=10_000)).optional(),
        cpus: decode_cpus(serve),
        quota_cores: serve.read("quota_cores", number(0.01..=1024.0)).optional(),
        floor: serve.read("floor", boolean()).or(false),
        fault: serve.read("fault", text(1..=100)).optional(),
    });
    let cure = "write `target: { adapter: moim, url: \"http://127.0.0.1:7880\" }` for a server that \
                runs, or `serve: {}` to have one started";
    match (root.exactly_one(&["target", "serve"], cure), root.has("serve")) {
        (false, _) => None,
        (true, false) => running,
        (true, true) => Some(TargetSection {
            target: Target::Serve(serve),
            adapter: Adapter::Moim,
            paths: Paths::default(),
            link_limit: LinkLimit::default(),
        }),
    }
}

/// Where streams are sent and asked for.
fn decode_paths(target: &mut Section<'_>, adapter: Adapter) -> Paths {
    let path = |expected| {
        let path = parsed(expected, |text: &str| {
            // It stands in the first line of a request.
            let odd = |c: char| c.is_whitespace() || c.is_control() || c == '#';
            let told = text.starts_with('/') && !text.contains(odd) && text.contains(NAME);
            told.then(|| text.to_owned()).ok_or(format!("{text:?} is no such path"))
        });
        path.pattern("^/[^\\s#]*\\{stream\\}[^\\s#]*$")
    };
    let own = Paths::default();
    let publish = path("a path with {stream} in it, such as /{stream}/whip");
    let publish = target.read("publish", publish).or(own.publish);
    let play = path("a path with {stream} in it, such as /{stream}/whep");
    let play = target.read("play", play).or(own.play);
    for key in ["publish", "play"] {
        if adapter != Adapter::Whip && target.has(key) {
            target.fault(key, "only `adapter: whip` has paths", "leave it out");
        }
    }
    Paths { publish, play }
}

fn decode_cpus(serve: &mut Section<'_>) -> Cpus {
    let expected = "`shared`, or the server's CPUs, such as [0]";
    let word = parsed(expected, |text: &str| match text {
        "shared" => Ok(None),
        _ => match text.parse::<usize>() {
            Ok(cpu) if cpu < 1024 => Ok(Some(cpu)),
            _ => Err(format!("{text:?} is no CPU")),
        },
    });
    let cpu = json!({ "type": "integer", "minimum": 0, "maximum": 1023 });
    let word = word.like(json!({ "anyOf": [{ "const": "shared" }, cpu] }));
    let words: Vec<Option<usize>> = serve.read("cpus", one_or_many(word, 1024)).or(vec![]);
    match words.iter().copied().collect::<Option<Vec<usize>>>() {
        None => Cpus::Shared,
        Some(list) if list.is_empty() => Cpus::Auto,
        Some(list) => Cpus::Server(list),
    }
}
