//! What everyone in a run shares: the record, the roster, faults and the end.

use crate::base::words;
use crate::clients::Server;
use crate::clients::bot::spec::BotCommand;
use crate::clients::link::networks::{Change, Network, Networks};
use crate::clients::login::Login;
use crate::judge::expected::{Expected, Listener};
use crate::judge::roster::Roster;
use crate::record::{EventRecord, Join, Level, PersonKind, PersonMeta, SampleRecord, Writer};
use crate::scenario::Crowd;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use wire::{EventEnvelope, QualitySample};

/// The run as its people see it.
#[derive(Debug)]
pub struct Stage {
    /// What is tested.
    pub server: Server,
    /// The record on disk.
    pub writer: Writer,
    /// The links before people.
    pub networks: Option<Networks>,
    /// How users log in at a server of our own; none: everybody is a guest.
    pub(crate) login: Option<Arc<Login>>,
    started: Instant,
    end: watch::Sender<bool>,
    crowd: watch::Sender<Crowd>,
    kept: Mutex<Kept>,
}

/// What is kept in memory for the verdict.
#[derive(Debug, Default)]
struct Kept {
    roster: Roster,
    people: Vec<PersonMeta>,
    /// Names of those who have come so far.
    came: BTreeSet<String>,
    /// Where bots that are there or on their way take orders, by number.
    orders: BTreeMap<u32, mpsc::Sender<BotCommand>>,
    connected: usize,
    joins: Vec<Join>,
    first_fault: Option<(u64, String)>,
    samples: Vec<Arc<SampleRecord>>,
    faults: Vec<String>,
    /// When the server was ended as planned: what people lack after that is no fault.
    server_ended_ms: Option<u64>,
    /// Lines to show that have not been shown yet.
    notes: Vec<String>,
}

impl Kept {
    /// What has come since `told`, which moves on.
    fn since(&self, told: &mut Told) -> (&[Arc<SampleRecord>], &[Join]) {
        let before = *told;
        *told = Told { samples: self.samples.len(), joins: self.joins.len() };
        let samples = self.samples.get(before.samples..).unwrap_or_default();
        (samples, self.joins.get(before.joins..).unwrap_or_default())
    }
}

/// How much of a run somebody has been told already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Told {
    samples: usize,
    joins: usize,
}

/// What has come since somebody was told last.
#[derive(Debug, Default)]
pub struct News {
    /// Samples, each person's in order.
    pub samples: Vec<Arc<SampleRecord>>,
    /// From asking to join until connected, in milliseconds, by person.
    pub joins: Vec<Join>,
    /// Lines to show.
    pub notes: Vec<String>,
    /// People connected now.
    pub connected: usize,
    /// People who have ever joined.
    pub joined: usize,
    /// Faults so far.
    pub faults: usize,
}

/// What the verdict needs of a [`Stage`].
#[derive(Debug)]
pub struct Outcome {
    /// Everyone.
    pub people: Vec<PersonMeta>,
    /// All samples, each person's in order.
    pub samples: Vec<SampleRecord>,
    /// What went wrong outside of samples.
    pub faults: Vec<String>,
    /// The first of them, and when it was seen.
    pub first_fault: Option<(u64, String)>,
    /// Everyone who was connected.
    pub joins: Vec<Join>,
    /// What should have been received.
    pub expected: Expected,
}

impl Stage {
    /// A run that begins now.
    pub fn new(server: Server, writer: Writer, people: Vec<PersonMeta>) -> Self {
        let kept = Kept { people, ..Kept::default() };
        let (started, end) = (Instant::now(), watch::Sender::new(false));
        let crowd = watch::Sender::default();
        let login = None;
        Self { server, writer, networks: None, login, started, end, crowd, kept: Mutex::new(kept) }
    }

    /// The same with links before people.
    pub fn with_networks(self, networks: Option<Networks>) -> Self {
        Self { networks, ..self }
    }

    /// The same at a server where users log in.
    pub(crate) fn with_login(self, login: Option<Arc<Login>>) -> Self {
        Self { login, ..self }
    }

    /// Changes networks when it is time; dropping the tasks ends that.
    pub fn change_networks(self: &Arc<Self>, networks: &[Network]) -> JoinSet<()> {
        let (mut tasks, begin) = (JoinSet::new(), tokio::time::Instant::now());
        for (index, network) in networks.iter().cloned().enumerate() {
            let stage = Arc::clone(self);
            tasks.spawn(async move {
                for change in &network.changes {
                    sleep_until(begin + change.at).await;
                    stage.change_network(index, &network.name, change);
                }
            });
        }
        tasks
    }

    /// Changes a network now.
    pub fn change_network(&self, index: usize, name: &str, change: &Change) {
        if let Some(networks) = &self.networks {
            networks.change(index, change, self.now_ms());
        }
        self.event(Level::Info, None, format!("the network {name} changes"));
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since the start of the run.
    pub fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Becomes true when the run ends.
    pub fn end(&self) -> watch::Receiver<bool> {
        self.end.subscribe()
    }

    /// Ends the run for everyone.
    pub fn finish(&self) {
        self.end.send_replace(true);
    }

    /// How many who leads the run wants to be there; nobody until they say so.
    pub fn crowd(&self) -> watch::Receiver<Crowd> {
        self.crowd.subscribe()
    }

    /// Wants so many to be there.
    pub fn want(&self, crowd: Crowd) {
        self.crowd.send_replace(crowd);
    }

    /// Whether the run has ended: what fails after that is no fault.
    pub fn finished(&self) -> bool {
        *self.end.borrow()
    }

    /// Records that something happened.
    pub fn event(&self, level: Level, person: Option<&str>, text: impl Into<String>) {
        let (t_ms, text): (u64, String) = (self.now_ms(), text.into());
        let text = words(&text);
        if level != Level::Info {
            let who = person.map(|name| format!("{name}: ")).unwrap_or_default();
            self.kept().notes.push(format!("{:.1} s  {who}{text}", t_ms as f64 / 1000.0));
        }
        self.writer.event(&EventRecord { t_ms, text, person: person.map(str::to_owned), level });
    }

    /// Records a failure: it decides the verdict. Failures after the end of the run do not count, nor those of people
    /// after the server was ended as planned.
    pub fn fault(&self, person: Option<&str>, text: impl Into<String>) {
        if self.finished() {
            return;
        }
        let text: String = text.into();
        let text = words(&text);
        if person.is_some() && self.kept().server_ended_ms.is_some() {
            return self.event(Level::Warn, person, text);
        }
        let who = person.map(|name| format!("{name} ")).unwrap_or_default();
        let (t_ms, sentence) = (self.now_ms(), format!("{who}{text}"));
        let mut kept = self.kept();
        kept.first_fault.get_or_insert_with(|| (t_ms, sentence.clone()));
        kept.faults.push(sentence);
        drop(kept);
        self.event(Level::Error, person, text);
    }

    /// The server is ended as planned, now.
    pub fn server_ends(&self) {
        let t_ms = self.now_ms();
        self.kept().server_ended_ms.get_or_insert(t_ms);
    }

    /// Gives `work` the samples that have come since `told`, and everyone who was connected since.
    /// `told` moves on.
    pub fn since(&self, told: &mut Told, work: impl FnOnce(&[Arc<SampleRecord>], &[Join])) {
        let kept = self.kept();
        let (samples, joins) = kept.since(told);
        work(samples, joins);
    }

    /// Works on the roster.
    pub fn roster<T>(&self, work: impl FnOnce(&mut Roster) -> T) -> T {
        work(&mut self.kept().roster)
    }

    /// Takes an event of a room.
    pub fn room_event(&self, room: &str, event: &EventEnvelope) {
        let t_ms = self.now_ms();
        self.roster(|roster| roster.event(room, event, t_ms));
    }

    /// Takes what somebody says they send: not all rooms tell of everybody.
    pub fn sends(&self, room: &str, name: &str, sample: &QualitySample) {
        let t_ms = self.now_ms();
        let who = (sample.participant.as_str(), name);
        self.roster(|roster| {
            for row in &sample.sent {
                roster.sends(room, who, &row.track, row.kind, t_ms);
            }
        });
    }

    /// Somebody leaves, and sends nothing any more.
    pub fn sends_no_more(&self, room: &str, participant: &str) {
        let t_ms = self.now_ms();
        self.roster(|roster| roster.sends_no_more(room, participant, t_ms));
    }

    /// Someone comes now. If the plan of people did not know them, they are added.
    pub fn comes(&self, person: &PersonMeta) {
        let mut kept = self.kept();
        let new = kept.came.insert(person.name.clone());
        if new && !kept.people.iter().any(|known| known.name == person.name) {
            kept.people.push(person.clone());
        }
    }

    /// A bot is on its way, and takes orders from now on.
    pub fn attends(&self, bot: u32, orders: mpsc::Sender<BotCommand>) {
        self.kept().orders.insert(bot, orders);
    }

    /// A bot is gone, and takes orders no more.
    pub fn attended(&self, bot: u32) {
        self.kept().orders.remove(&bot);
    }

    /// Numbers of the bots that take orders, rising.
    pub fn attending(&self) -> Vec<u32> {
        self.kept().orders.keys().copied().collect()
    }

    /// Orders a bot to do something. Says whether it is there to do it.
    pub fn order(&self, bot: u32, command: BotCommand) -> bool {
        let orders = self.kept().orders.get(&bot).cloned();
        orders.is_some_and(|orders| orders.try_send(command).is_ok())
    }

    /// Someone's participant id became known: they joined.
    pub fn joined(&self, person: &str, participant: &str) {
        let mut kept = self.kept();
        if let Some(meta) = kept.people.iter_mut().find(|meta| meta.name == person) {
            meta.participant = Some(participant.to_owned());
        }
    }

    /// Someone's media is connected.
    pub fn connected(&self, listener: Listener, took_ms: u64) {
        let text = format!("connected after {took_ms} ms");
        self.event(Level::Info, Some(&listener.person), text);
        let t_ms = self.now_ms();
        let mut kept = self.kept();
        kept.connected += 1;
        let (person, took_ms) = (listener.person.clone(), took_ms as f64);
        kept.joins.push(Join { person, t_ms, took_ms });
        kept.roster.connected(listener);
    }

    /// Someone is gone: nothing is expected of them any more.
    pub fn gone(&self, participant: &str) {
        let t_ms = self.now_ms();
        let mut kept = self.kept();
        if kept.roster.gone(participant, t_ms) {
            kept.connected -= 1;
        }
    }

    /// Records a sample.
    pub fn sample(&self, person: &str, kind: PersonKind, sample: QualitySample) {
        let record = SampleRecord { t_ms: self.now_ms(), person: person.to_owned(), kind, sample };
        self.writer.sample(&record);
        self.kept().samples.push(Arc::new(record));
    }

    /// People connected, and faults so far.
    pub fn standing(&self) -> (usize, usize) {
        let kept = self.kept();
        (kept.connected, kept.faults.len())
    }

    /// Everyone, as far as known.
    pub fn people(&self) -> Vec<PersonMeta> {
        self.kept().people.clone()
    }

    /// What has come since `told`, which moves on. Samples are shared, not copied.
    pub fn news(&self, told: &mut Told) -> News {
        let mut kept = self.kept();
        let (samples, joins) = kept.since(told);
        let (samples, joins) = (samples.to_vec(), joins.to_vec());
        News {
            samples,
            joins,
            notes: std::mem::take(&mut kept.notes),
            connected: kept.connected,
            joined: kept.people.iter().filter(|person| person.participant.is_some()).count(),
            faults: kept.faults.len(),
        }
    }

    /// What the verdict needs, up to `end_ms`. If the run was `cut`, people who had not come yet are
    /// left out.
    pub fn outcome(&self, end_ms: u64, cut: bool) -> Outcome {
        let mut kept = self.kept();
        let samples = std::mem::take(&mut kept.samples);
        let mut people = kept.people.clone();
        people.retain(|person| !cut || kept.came.contains(&person.name));
        let until_ms = kept.server_ended_ms.map_or(end_ms, |at| at.min(end_ms));
        let mut expected = kept.roster.expected(until_ms);
        for person in &people {
            let on = self.networks.as_ref().zip(person.network);
            let cuts = on.map(|(networks, network)| networks.cuts(network)).unwrap_or_default();
            if !cuts.is_empty() {
                expected.cuts.insert(person.name.clone(), cuts);
            }
        }
        Outcome {
            people,
            samples: samples.into_iter().map(Arc::unwrap_or_clone).collect(),
            faults: kept.faults.clone(),
            first_fault: kept.first_fault.clone(),
            joins: kept.joins.clone(),
            expected,
        }
    }
}
