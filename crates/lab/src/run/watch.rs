//! Watches a run from the first join to its end.

use super::abort::Abort;
use super::lead::{Leader, Seen};
use super::serve::OwnServer;
use crate::base::SplitMix;
use crate::clients::bot::spec::BotCommand;
use crate::clients::link::Networks;
use crate::observe::monitor::Monitor;
use crate::people::sockets;
use crate::people::stage::{Stage, Told};
use crate::progress::{Phase, Progress};
use crate::record::{Level, MachineRecord, Meta};
use crate::scenario::{Happening, Scenario};
use rustix::process::{Pid, Signal, kill_process_group};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use wire::quality::SAMPLE_INTERVAL_MS;

/// How often to look whether a server that should end has ended.
const ENDING_EVERY: Duration = Duration::from_millis(50);
/// How often the progress is shown.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// Watches the run: machine, progress, the scenario's events, and its end.
pub(super) struct Watch<'a> {
    /// What the bots have sent and received so far.
    pub(super) datagrams: &'a (dyn Fn() -> Option<(u64, u64)> + Sync),
    /// How late the bots' timers were since it was asked last, in ms (99th percentile).
    pub(super) lag_ms: &'a (dyn Fn() -> Option<f64> + Sync),
    pub(super) scenario: &'a Scenario,
    pub(super) stage: &'a Stage,
    pub(super) monitor: &'a mut Monitor,
    pub(super) server: Option<&'a mut OwnServer>,
    pub(super) machine: Vec<MachineRecord>,
    pub(super) meta: &'a mut Meta,
    pub(super) sockets: &'a [sockets::Load],
    pub(super) progress: Progress,
    pub(super) told: Told,
    /// How the server is being ended as planned, and since when.
    pub(super) ending: Option<String>,
    /// Who says on the way how many are there, and what they have seen.
    pub(super) leader: Option<&'a mut dyn Leader>,
    pub(super) led: Told,
}

/// Why a run is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// Its time is over.
    Time,
    /// Somebody interrupted it.
    Interrupted,
    /// The server ended.
    Server,
    /// A threshold that ends it failed, in words.
    Aborted(String),
}

impl Watch<'_> {
    /// Watches until the run is over, and returns why.
    pub(super) async fn until_the_end(&mut self, interrupt: impl Future<Output = ()>) -> End {
        let begin = Instant::now();
        let end = begin + self.scenario.duration;
        let mut interrupt = std::pin::pin!(interrupt);
        let scenario = self.scenario;
        let mut events = scenario.events.iter().zip(1..).peekable();
        let mut abort = Abort::new(scenario);
        let mut next_record = begin + Duration::from_millis(SAMPLE_INTERVAL_MS);
        let mut next_progress = begin;
        loop {
            let next_event = events.peek().map_or(end, |(event, _)| begin + event.at);
            let next_look = self.ending.as_ref().map_or(end, |_| Instant::now() + ENDING_EVERY);
            let wake = end.min(next_record).min(next_progress).min(next_event).min(next_look);
            tokio::select! {
                () = &mut interrupt => {
                    self.stage.event(Level::Warn, None, "interrupted");
                    return End::Interrupted;
                }
                () = sleep_until(wake) => {}
            }
            let now = Instant::now();
            if now >= next_progress {
                self.show(Phase::Under);
                next_progress = now + PROGRESS_EVERY;
            }
            while let Some((event, number)) = events.next_if(|(event, _)| begin + event.at <= now) {
                self.happens(&event.what, number);
            }
            // The caller records the last window, at the end.
            if now >= next_record && now < end {
                self.record(self.stage.now_ms()).await;
                next_record += Duration::from_millis(SAMPLE_INTERVAL_MS);
                if let Some(why) = abort.look(self.stage, || self.sockets_now().counts, now - begin)
                {
                    self.stage.event(Level::Error, None, why.clone());
                    self.show(Phase::Under);
                    return End::Aborted(why);
                }
                if !self.lead() {
                    self.show(Phase::Under);
                    return End::Time;
                }
            }
            if let Some(status) = self.server.as_mut().and_then(|server| server.ended()) {
                let text = match &self.ending {
                    Some(how) => format!("the server {how} as planned ({status})"),
                    None => format!("the server ended in the middle ({status})"),
                };
                self.stage.fault(None, text);
                self.show(Phase::Under);
                return End::Server;
            }
            if now >= end {
                if let Some(how) = &self.ending {
                    let text = format!("the server {how} as planned, and had not ended by the end");
                    self.stage.fault(None, text);
                }
                self.show(Phase::Under);
                return End::Time;
            }
        }
    }

    pub(super) fn show(&mut self, phase: Phase) {
        let sockets = self.sockets_now();
        let news = self.stage.news(&mut self.told);
        self.progress.update(Duration::from_millis(self.stage.now_ms()), phase, sockets, news);
    }

    /// Asks who leads the run, if anybody does. False: it is over.
    fn lead(&mut self) -> bool {
        let (Some(leader), Some(machine)) = (&mut self.leader, self.machine.last()) else {
            return true;
        };
        let (t_ms, (connected, _)) = (self.stage.now_ms(), self.stage.standing());
        let mut samples = Vec::new();
        self.stage.since(&mut self.led, |new, _| samples.extend_from_slice(new));
        match leader.look(&Seen { t_ms, connected, samples: &samples, machine }) {
            Some(crowd) => self.stage.want(crowd),
            None => return false,
        }
        true
    }

    fn sockets_now(&self) -> sockets::Now {
        let mut all = sockets::Now::default();
        self.sockets.iter().for_each(|load| all.add(load.now()));
        all
    }

    /// Makes an event of the scenario happen; `number` counts the events from 1.
    fn happens(&mut self, what: &Happening, number: u64) {
        match what {
            Happening::Bot { bot, command } => self.command(*bot, *command),
            Happening::Leave { count } => {
                let mut there = self.stage.attending();
                if (there.len() as u32) < *count {
                    let text = format!("{count} bots should leave, and {} are there", there.len());
                    self.stage.fault(None, text);
                }
                let mut random = SplitMix(number);
                for _ in 0..(*count).min(there.len() as u32) {
                    let at = random.below(there.len() as u64) as usize;
                    self.command(there.swap_remove(at), BotCommand::Leave);
                }
            }
            Happening::StopServer => self.end_server(Signal::INT, "was stopped"),
            Happening::KillServer => self.end_server(Signal::KILL, "was killed"),
            Happening::ChangeNetwork { network, change } => {
                let networks = &self.scenario.networks;
                if let Some(index) = networks.iter().position(|known| known.name == *network) {
                    self.stage.change_network(index, network, change);
                }
            }
        }
    }

    /// Ends our own server. Its end is told once it has ended.
    fn end_server(&mut self, signal: Signal, how: &str) {
        let group = self.server.as_ref().and_then(|server| Pid::from_raw(server.pid() as i32));
        let Some(group) = group else { return };
        self.stage.server_ends();
        let at_s = self.stage.now_ms() as f64 / 1000.0;
        self.ending = Some(format!("{how} at {at_s:.1} s"));
        self.stage.event(Level::Warn, None, format!("the server {how} as planned"));
        if let Err(error) = kill_process_group(group, signal) {
            self.stage.fault(None, format!("the server could not be ended: {error}"));
        }
    }

    fn command(&self, bot: u32, what: BotCommand) {
        if !self.stage.order(bot, what) {
            let text = format!("{what:?} could not be done: the bot is not there");
            self.stage.fault(Some(&format!("bot-{bot}")), text);
        }
    }

    pub(super) async fn record(&mut self, t_ms: u64) {
        let mut record = self.monitor.record(t_ms, (self.datagrams)()).await;
        record.person_links = self.stage.networks.as_ref().map(Networks::used).unwrap_or_default();
        let lag_ms = (self.lag_ms)().unwrap_or(0.0);
        record.generator.timer_lag_ms_p99 = record.generator.timer_lag_ms_p99.max(lag_ms);
        record.sockets = self.sockets.iter().map(sockets::Load::take_seconds).collect();
        self.stage.writer.machine(&record);
        self.progress.machine(&record);
        self.machine.push(record);
        // A run that is killed should know who had joined.
        let people = self.stage.people();
        if people != self.meta.people {
            self.meta.people = people;
            if let Err(error) = self.stage.writer.meta(self.meta) {
                self.stage.event(Level::Error, None, format!("meta.json: {error}"));
            }
        }
    }
}
