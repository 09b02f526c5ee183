//! Who comes when, and goes where.

use super::house::House;
use crate::bots::{BotCommand, BotDriver, BotSpec, Media, SlotPool, VideoSource};
use crate::link::networks::network_of;
use crate::person::{self, Place};
use crate::proc;
use crate::record::{Meta, PersonKind, PersonMeta, SCHEMA, TargetMeta};
use crate::scenario::Scenario;
use crate::stage::Stage;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use wire::room::VideoTopology;

/// One person of the plan.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) kind: PersonKind,
    /// Number among its kind, from 1.
    pub(super) index: u32,
    pub(super) place: Place,
}

/// Everyone in the order of joining: in each room browsers first, since a page takes longest.
pub(super) fn plan(scenario: &Scenario, started_at: SystemTime) -> Vec<Planned> {
    // Two runs on one server must not meet in a room.
    let since_epoch = started_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mark = since_epoch.as_millis() as u32 & 0xff_ffff;
    let everyone = scenario.bots() + scenario.chromium();
    let (mut people, mut rooms, mut bots, mut pages) = (Vec::new(), 0u32, 0u32, 0u32);
    for group in &scenario.rooms {
        for _ in 0..group.count {
            rooms += 1;
            let room = format!("{}-{rooms}-{mark:06x}", scenario.name);
            let senders = group.senders.unwrap_or(u32::MAX);
            let before = people.len() as u32;
            let place = |number| {
                let (sends_video, index) = (number < senders, before + number);
                let network = network_of(&scenario.networks, index, everyone);
                Place { room: room.clone(), group: group.clone(), sends_video, network }
            };
            for number in 0..group.chromium {
                pages += 1;
                let name = format!("chromium-{pages}");
                let (kind, place) = (PersonKind::Chromium, place(number));
                people.push(Planned { name, kind, index: pages, place });
            }
            for number in 0..group.bots {
                bots += 1;
                let (name, place) = (format!("bot-{bots}"), place(group.chromium + number));
                people.push(Planned { name, kind: PersonKind::Bot, index: bots, place });
            }
        }
    }
    people
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
    let people = plan.iter().map(|planned| PersonMeta {
        name: planned.name.clone(),
        kind: planned.kind,
        room: planned.place.room.clone(),
        participant: None,
    });
    Meta {
        schema: SCHEMA,
        name: scenario.name.clone(),
        started_at: humantime::format_rfc3339_seconds(started_at).to_string(),
        duration_s: scenario.duration.as_secs_f64(),
        target: TargetMeta { adapter: "moim".into(), url: house.url.to_string() },
        version,
        scenario: scenario.text.clone(),
        people: people.collect(),
        machine,
        cpus: house.cpus.clone(),
    }
}

/// Starts everyone's task at his time; the bots take commands by their number.
pub(super) fn invite<D: BotDriver>(
    scenario: &Scenario,
    house: &House<D>,
    stage: &Arc<Stage>,
    plan: Vec<Planned>,
) -> (JoinSet<()>, BTreeMap<u32, mpsc::Sender<BotCommand>>) {
    let mut tasks = JoinSet::new();
    let mut commands = BTreeMap::new();
    let begin = Instant::now();
    for (position, planned) in plan.into_iter().enumerate() {
        let at = begin + Duration::from_secs_f64(position as f64 / scenario.join_per_second);
        let stage = Arc::clone(stage);
        let Planned { name, kind, index, place } = planned;
        match kind {
            PersonKind::Bot => {
                let Some(Ok(driver)) = house.bots.clone() else { continue };
                let (sender, receiver) = mpsc::channel(8);
                commands.insert(index, sender);
                let silent = !place.sends_video || place.group.video == VideoTopology::None;
                let video = if silent { VideoSource::None } else { scenario.media.video };
                let spec = BotSpec {
                    name,
                    index,
                    media: Media { video, ..scenario.media },
                    video_codec: place.group.video_codec,
                    slots: SlotPool::default(),
                    ..BotSpec::default()
                };
                tasks.spawn(async move {
                    sleep_until(at).await;
                    match place.group.churn {
                        Some(stay) => person::churn(stage, driver, spec, place, stay).await,
                        None => person::bot(stage, driver, spec, place, receiver).await,
                    }
                });
            }
            PersonKind::Chromium => {
                let Some(browser) = house.browser().cloned() else { continue };
                let show = scenario.canary_show;
                tasks.spawn(async move {
                    sleep_until(at).await;
                    person::canary(stage, browser, name, place, show).await;
                });
            }
        }
    }
    (tasks, commands)
}
