//! The `networks` of a scenario.

use super::rooms::RoomGroup;
use crate::base::Url;
use crate::clients::link::model::{LinkSpec, Loss};
use crate::clients::link::networks::{Change, Network};
use settings::{Section, Shape, boolean, duration, list_of, number, one_of, parsed, section};
use std::time::Duration;
use wire::room::{AudioTopology, VideoTopology};

/// Which way a network is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ways {
    Both,
    Up,
    Down,
}

pub(super) fn decode(network: &mut Section<'_>) -> Option<Network> {
    let name = parsed("a name, such as mobile", |text: &str| match text.len() {
        1..=40 => Ok(text.to_owned()),
        _ => Err("it has 1 to 40 characters".into()),
    });
    let name = network.read("name", name).or("network".to_owned());
    let share_pct = network.read("share_pct", number(0.0..=100.0)).or(100.0);
    let shared = boolean().about("Whether all who are on it share one rate and one queue each way");
    let shared = network.read("shared", shared).or(false);
    let (up, down) = decode_link(network);
    let changes = network.read("changes", list_of(section(decode_change), 0..=1000)).or(vec![]);
    let mut network = Network { name, share_pct, shared, up, down, changes };
    network.changes.sort_by_key(|change| change.at);
    Some(network)
}

/// What a network is later: all that is not said is clear.
fn decode_change(change: &mut Section<'_>) -> Option<Change> {
    let day = Duration::ZERO..=Duration::from_secs(24 * 3600);
    let at = change.read("at", duration(day)).required();
    let (up, down) = decode_link(change);
    Some(Change { at: at?, up, down })
}

/// The keys of a link.
const LINK: [&str; 9] =
    ["delay", "jitter", "loss_pct", "burst_packets", "rate_kbps", "queue", "way", "up", "down"];

/// Whether a section says anything of a link.
pub(super) fn has_link(section: &Section<'_>) -> bool {
    LINK.iter().any(|key| section.has(key))
}

/// What is said of a direction.
#[derive(Debug, Clone, Copy)]
struct Said {
    delay: Duration,
    jitter: Duration,
    loss_pct: f64,
    burst_packets: f64,
    rate_kbps: Option<u32>,
    queue: Duration,
}

impl Said {
    /// Nothing: a clear link.
    const NOTHING: Self = Self {
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        loss_pct: 0.0,
        burst_packets: 1.0,
        rate_kbps: None,
        queue: Duration::ZERO,
    };

    /// Reads it; what is not said is as in `both`.
    fn decode(way: &mut Section<'_>, both: Self) -> Self {
        let minute = Duration::ZERO..=Duration::from_secs(60);
        let rate_kbps = number(1..=100_000_000u32);
        Self {
            delay: way.read("delay", duration(minute.clone())).or(both.delay),
            jitter: way.read("jitter", duration(minute.clone())).or(both.jitter),
            loss_pct: way.read("loss_pct", number(0.0..=100.0)).or(both.loss_pct),
            burst_packets: way.read("burst_packets", number(1.0..=10_000.0)).or(both.burst_packets),
            rate_kbps: way.read("rate_kbps", rate_kbps).optional().or(both.rate_kbps),
            queue: way.read("queue", duration(minute)).or(both.queue),
        }
    }

    fn spec(self) -> LinkSpec {
        let Self { delay, jitter, loss_pct, burst_packets, rate_kbps, queue } = self;
        let share = loss_pct / 100.0;
        let loss = match (share > 0.0, burst_packets > 1.0 && share < 1.0) {
            (false, _) => Loss::None,
            (true, false) => Loss::Random(share),
            (true, true) => Loss::Bursts { share, mean_packets: burst_packets },
        };
        LinkSpec { delay, jitter, loss, rate_kbps, queue }
    }
}

/// A link's two directions: what is said of both, and of each what it says of its own.
pub(super) fn decode_link(link: &mut Section<'_>) -> (LinkSpec, LinkSpec) {
    let both = Said::decode(link, Said::NOTHING);
    let ways = [("both", Ways::Both), ("up", Ways::Up), ("down", Ways::Down)];
    let ways = link.read("way", one_of(&ways)).or(Ways::Both);
    let up = link.section("up", |up| Said::decode(up, both)).spec();
    let down = link.section("down", |down| Said::decode(down, both)).spec();
    link.at_most_one(&["way", "up"]);
    link.at_most_one(&["way", "down"]);
    let clear = LinkSpec::default();
    match ways {
        Ways::Both => (up, down),
        Ways::Up => (up, clear),
        Ways::Down => (clear, down),
    }
}

/// What only the whole can tell.
pub(super) fn check(
    root: &mut Section<'_>,
    networks: &[Network],
    rooms: &[RoomGroup],
    running: Option<&Url>,
) {
    if networks.is_empty() {
        return;
    }
    let share: f64 = networks.iter().map(|network| network.share_pct).sum();
    if share > 100.0 {
        let what = format!("the shares add up to {share} %");
        root.fault("networks", what, "write shares of 100 % in all, or less: the rest has no link");
    }
    if running.is_some_and(|url| url.host.starts_with('[')) {
        let cure = "give the server's IPv4 address";
        root.fault("networks", "the link speaks IPv4 only", cure);
    }
    let mesh = rooms
        .iter()
        .any(|room| room.audio == AudioTopology::Mesh || room.video == VideoTopology::Mesh);
    if mesh {
        let cure = "give rooms of a mesh a scenario of their own, without networks";
        root.fault("networks", "members of a mesh send to each other, past the link", cure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn parse(networks: &str) -> Result<Scenario, settings::Problems> {
        let head = "name: x\nserve: {}\nduration: 9s\n";
        let rooms = "rooms: [{ people: { bot: 4, chromium: 1 } }]\n";
        Scenario::parse(&format!("{head}{rooms}networks: {networks}\n"), "x.yaml")
    }

    #[test]
    fn networks_and_what_they_become() {
        let text = "[{ name: mobile, share_pct: 30, delay: 80ms, jitter: 10ms, loss_pct: 2, burst_packets: 4, \
                    rate_kbps: 2000, queue: 300ms, changes: [{ at: 5s, loss_pct: 100 }, { at: 2s }] }, \
                    { share_pct: 70, delay: 1s, way: down }]";
        let networks = parse(text).expect("valid").networks;
        let ms = Duration::from_millis;
        let mobile = LinkSpec {
            delay: ms(80),
            jitter: ms(10),
            loss: Loss::Bursts { share: 0.02, mean_packets: 4.0 },
            rate_kbps: Some(2000),
            queue: ms(300),
        };
        assert_eq!((networks[0].up, networks[0].down), (mobile, mobile));
        let clear = LinkSpec::default();
        let out = LinkSpec { loss: Loss::Random(1.0), ..clear };
        let later = [
            Change { at: ms(2000), up: clear, down: clear },
            Change { at: ms(5000), up: out, down: out },
        ];
        assert_eq!(networks[0].changes, later, "in order of time");
        let far = LinkSpec { delay: ms(1000), ..clear };
        assert_eq!((networks[1].name.as_str(), networks[1].up), ("network", clear));
        assert_eq!(networks[1].down, far);
    }

    #[test]
    fn a_direction_may_differ_and_people_may_share_a_link() {
        let text = "[{ name: dsl, shared: true, delay: 20ms, jitter: 2ms, queue: 100ms, \
                    up: { rate_kbps: 500, loss_pct: 1 }, down: { rate_kbps: 3000, queue: 300ms }, \
                    changes: [{ at: 5s, rate_kbps: 900, down: { rate_kbps: 1500 } }], \
                    share_pct: 75 }, { share_pct: 25 }]";
        let networks = parse(text).expect("valid").networks;
        let ms = Duration::from_millis;
        let both = LinkSpec { delay: ms(20), jitter: ms(2), ..LinkSpec::default() };
        let up =
            LinkSpec { rate_kbps: Some(500), loss: Loss::Random(0.01), queue: ms(100), ..both };
        let down = LinkSpec { rate_kbps: Some(3000), queue: ms(300), ..both };
        assert_eq!((networks[0].up, networks[0].down), (up, down));
        let change = networks[0].changes[0];
        assert_eq!((change.up.rate_kbps, change.down.rate_kbps), (Some(900), Some(1500)));
        assert_eq!([networks[0].shared, networks[1].shared], [true, false]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (networks, said) in [
            ("[{ way: up, down: { delay: 5ms } }]", "both way and down"),
            ("[{ up: { way: up } }]", "unknown key"),
            ("[{ share_pct: 60 }, { share_pct: 50 }]", "the shares add up to 110 %"),
            ("[{ losspct: 3 }]", "loss_pct"),
            ("[{ loss_pct: 101 }]", "out of range"),
            ("[{ changes: [{ delay: 5ms }] }]", "at"),
        ] {
            let problems = parse(networks).expect_err("refused").to_string();
            assert!(problems.contains(said), "{networks}: {problems}");
        }
        let mesh = "name: x\nserve: {}\nduration: 9s\nnetworks: [{}]\n\
                    rooms: [{ preset: mesh, people: { bot: 2 } }]\n";
        let problems = Scenario::parse(mesh, "x.yaml").expect_err("refused").to_string();
        assert!(problems.contains("past the link"), "{problems}");
    }
}
