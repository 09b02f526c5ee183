//! Who comes when, and goes where.

use super::house::House;
use crate::clients::bot::marks::Turn;
use crate::clients::bot::spec::{BotDriver, BotSpec, SlotPool};
use crate::clients::bot::words::AudioSource;
use crate::clients::link::networks::network_of;
use crate::observe::proc;
use crate::people::person::{self, Guest, PageGuest, Place};
use crate::people::stage::Stage;
use crate::record::{Meta, PersonKind, SCHEMA, TargetMeta};
use crate::scenario::{Arrival, Executor, LED_CORE, Role, RoomGroup, Scenario, Stay, ramp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use wire::room::AudioTopology;

/// One person of the plan.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) kind: PersonKind,
    /// Number among its kind, from 1.
    pub(super) index: u32,
    pub(super) place: Place,
    pub(super) coming: Coming,
}

/// When somebody comes, from the first join on.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Coming {
    /// Once, then, to stay.
    At(Duration),
    /// Then for the first time. They stay about so long, leave and come again.
    Churn(Duration, Duration),
    /// For these times.
    Stays(Vec<Stay>),
    /// When it is their turn among those of their group who arrive at a rate.
    Arriving(usize, Arrival),
    /// When who leads the run wants more of this group of rooms.
    Led(usize),
}

/// Everyone in the order of joining: in each room browsers first, since a page takes longest.
pub(super) fn plan(scenario: &Scenario, started_at: SystemTime) -> Vec<Planned> {
    // Two runs on one server must not meet in a room.
    let since_epoch = started_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mark = since_epoch.as_millis() as u32 & 0xff_ffff;
    let everyone = scenario.bots() + scenario.chromium();
    let (mut people, mut rooms, mut bots, mut pages) = (Vec::new(), 0u32, 0u32, 0u32);
    let mixes = scenario.rooms.iter().filter(|group| group.audio == AudioTopology::Mcu);
    let (mut mixed, in_mixes) = (0, mixes.map(|group| group.count * with_marks(group)).sum());
    let mut queue =
        (0u32..).map(|nth| Duration::from_secs_f64(f64::from(nth) / scenario.join_per_second));
    let mut next = || queue.next().unwrap_or_default();
    for (number_of_group, group) in scenario.rooms.iter().enumerate() {
        let mut stays = match &group.executor {
            Executor::Ramping { stages } => ramp(stages, group.count * group.bots),
            _ => Vec::new(),
        }
        .into_iter();
        for _ in 0..group.count {
            rooms += 1;
            let id = format!("{}-{rooms}-{mark:06x}", scenario.name);
            let room = Room::new(scenario, group, id, rooms);
            let before = people.len() as u32;
            let network = |number| network_of(&scenario.networks, before + number, everyone);
            for number in 0..group.chromium {
                pages += 1;
                let (name, kind) = (format!("chromium-{pages}"), PersonKind::Chromium);
                let place = room.page(number, network(number));
                let coming = match &group.executor {
                    Executor::Churn { stay } => Coming::Churn(next(), *stay),
                    _ => Coming::At(next()),
                };
                people.push(Planned { name, kind, index: pages, place, coming });
            }
            for number in 0..group.bots {
                bots += 1;
                let (name, kind) = (format!("bot-{bots}"), PersonKind::Bot);
                let takes_part = number < with_marks(group);
                let listening = takes_part.then_some(Turn { place: mixed, of: in_mixes });
                mixed += u32::from(takes_part && group.audio == AudioTopology::Mcu);
                let place = room.bot(number, network(group.chromium + number), listening);
                let coming = match &group.executor {
                    Executor::Constant => Coming::At(next()),
                    Executor::Churn { stay } => Coming::Churn(next(), *stay),
                    Executor::Ramping { .. } => Coming::Stays(stays.next().unwrap_or_default()),
                    Executor::Arrival(arrival) => Coming::Arriving(number_of_group, *arrival),
                    Executor::Led => Coming::Led(number_of_group),
                };
                people.push(Planned { name, kind, index: bots, place, coming });
            }
        }
    }
    people
}

/// How many bots of a room say marks and listen for them: of people who are led those who are always there.
fn with_marks(group: &RoomGroup) -> u32 {
    match group.executor {
        Executor::Led => group.bots.min(LED_CORE),
        _ => group.bots,
    }
}

/// A room that is being filled.
struct Room<'a> {
    id: String,
    group: &'a RoomGroup,
    /// The role of each bot; empty without roles.
    roles: Vec<&'a Role>,
    /// Which bots say something, by number.
    speakers: Vec<u32>,
    /// Whether browsers send a picture.
    cameras: bool,
}

impl<'a> Room<'a> {
    /// The `seed` repeats from run to run, unlike the id.
    fn new(scenario: &Scenario, group: &'a RoomGroup, id: String, seed: u32) -> Self {
        let roles = group.deal(u64::from(seed));
        let speaks = |number: &u32| {
            let role = roles.get(*number as usize);
            role.is_none_or(|role| role.audio && role.speaks_pct > 0.0)
        };
        let silent = scenario.media.audio == AudioSource::None;
        let bots = if silent { 0 } else { with_marks(group) };
        let speakers = (0..bots).filter(speaks).collect();
        Self { id, group, roles, speakers, cameras: scenario.canary.camera.is_some() }
    }

    fn place(&self, number: u32, network: Option<usize>) -> Place {
        Place {
            room: self.id.clone(),
            group: self.group.clone(),
            role: None,
            sends_video: number < self.group.senders.unwrap_or(u32::MAX),
            turn: None,
            listening: Some(Turn { place: 0, of: 1 }),
            voices: self.speakers.len() as u32 + self.group.chromium,
            network,
        }
    }

    /// A browser's place; `number` counts the room's browsers.
    fn page(&self, number: u32, network: Option<usize>) -> Place {
        let place = self.place(number, network);
        Place { voices: place.voices - 1, sends_video: place.sends_video && self.cameras, ..place }
    }

    /// A bot's place; `number` counts the room's bots.
    fn bot(&self, number: u32, network: Option<usize>, listening: Option<Turn>) -> Place {
        let place = self.place(self.group.chromium + number, network);
        let role = self.roles.get(number as usize).map(|role| (*role).clone());
        let of = self.speakers.len() as u32;
        let turn = self.speakers.binary_search(&number).ok();
        let turn = turn.map(|turn| Turn { place: turn as u32, of });
        Place {
            sends_video: role.as_ref().map_or(place.sends_video, |role| role.video),
            voices: place.voices - u32::from(turn.is_some()),
            role,
            turn,
            listening,
            ..place
        }
    }
}

pub(super) fn meta<D: BotDriver>(
    scenario: &Scenario,
    house: &House<D>,
    plan: &[Planned],
    started_at: SystemTime,
) -> Meta {
    let mut machine = proc::machine();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    machine.versions.insert("moim".into(), version.clone());
    if let Some(browser) = house.browser() {
        machine.versions.insert("chromium".into(), browser.version().to_owned());
    }
    // The others may never come.
    let sure = |planned: &&Planned| matches!(planned.coming, Coming::At(_) | Coming::Churn(..));
    let people = plan.iter().filter(sure);
    let people = people.map(|planned| planned.place.person(&planned.name, planned.kind));
    Meta {
        fault: None,
        schema: SCHEMA,
        name: scenario.name.clone(),
        started_at: humantime::format_rfc3339_seconds(started_at).to_string(),
        duration_s: scenario.duration.as_secs_f64(),
        target: TargetMeta { adapter: scenario.adapter.name().into(), url: house.url.to_string() },
        version,
        scenario: scenario.text.clone(),
        people: people.collect(),
        machine,
        cpus: house.cpus.clone(),
    }
}

/// Starts everyone's task at their time.
pub(super) fn invite<D: BotDriver>(
    scenario: &Scenario,
    house: &House<D>,
    stage: &Arc<Stage>,
    plan: Vec<Planned>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let begin = Instant::now();
    let mut arriving: BTreeMap<usize, (Arrival, Vec<Guest<D>>)> = BTreeMap::new();
    let mut led: BTreeMap<usize, Vec<Guest<D>>> = BTreeMap::new();
    for planned in plan {
        let Planned { name, kind, index, place, coming } = planned;
        let stage = Arc::clone(stage);
        if kind == PersonKind::Chromium {
            let told = scenario.canary;
            let bots = house.bots.as_ref().and_then(|bots| bots.as_ref().ok());
            let marks = bots.and_then(|bots| bots.marks());
            let marks = marks.filter(|_| scenario.media.audio == AudioSource::Speech);
            let page = PageGuest { stage, name, index, place, told, marks };
            match (coming, house.browser().cloned()) {
                (Coming::Churn(from, stay), _) => {
                    tasks.spawn(person::canary_churn(page, begin + from, stay));
                }
                (Coming::At(at), Some(browser)) => {
                    tasks.spawn(async move {
                        sleep_until(begin + at).await;
                        person::canary(page, browser).await;
                    });
                }
                _ => {}
            }
            continue;
        }
        let Some(Ok(driver)) = house.bots.clone() else { continue };
        let spec = BotSpec {
            name,
            index,
            media: place.media(scenario.media),
            video_codec: place.group.video_codec,
            protocol: scenario.protocol,
            slots: SlotPool::default(),
            lacks: place.lacks(),
            ..BotSpec::default()
        };
        let guest = Guest { stage, driver, spec, place };
        match coming {
            Coming::At(from) => {
                tasks.spawn(person::bot(guest, begin, vec![Stay { from, until: None }]));
            }
            Coming::Churn(from, stay) => {
                tasks.spawn(person::churn(guest, begin + from, stay));
            }
            Coming::Stays(stays) => {
                tasks.spawn(person::bot(guest, begin, stays));
            }
            Coming::Arriving(group, arrival) => {
                arriving.entry(group).or_insert((arrival, Vec::new())).1.push(guest);
            }
            Coming::Led(group) => led.entry(group).or_default().push(guest),
        }
    }
    for (arrival, guests) in arriving.into_values() {
        tasks.spawn(person::arrivals(guests, arrival, (begin, scenario.duration)));
    }
    for guests in led.into_values() {
        tasks.spawn(person::crowd(guests));
    }
    tasks
}
