//! Watches a run from the first join to its end.

use crate::bots::BotCommand;
use crate::monitor::Monitor;
use crate::progress::{Progress, Status};
use crate::record::{Level, MachineRecord, Meta};
use crate::scenario::Scenario;
use crate::serve::OwnServer;
use crate::stage::Stage;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use wire::quality::SAMPLE_INTERVAL_MS;

/// How often the progress is shown.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// Watches the run: machine, progress, the scenario's events, and its end.
pub(super) struct Watch<'a> {
    /// What the bots have sent and received so far.
    pub(super) datagrams: &'a (dyn Fn() -> Option<(u64, u64)> + Sync),
    pub(super) scenario: &'a Scenario,
    pub(super) stage: &'a Stage,
    pub(super) monitor: &'a mut Monitor,
    pub(super) server: Option<&'a mut OwnServer>,
    pub(super) machine: Vec<MachineRecord>,
    pub(super) meta: &'a mut Meta,
    pub(super) progress: Progress,
}

impl Watch<'_> {
    /// Whether it was interrupted.
    pub(super) async fn until_the_end(&mut self, interrupt: impl Future<Output = ()>) -> bool {
        let begin = Instant::now();
        let end = begin + self.scenario.duration;
        let mut interrupt = std::pin::pin!(interrupt);
        let mut events = self.scenario.events.iter().peekable();
        let mut next_record = begin + Duration::from_millis(SAMPLE_INTERVAL_MS);
        let mut next_progress = begin;
        loop {
            let next_event = events.peek().map_or(end, |event| begin + event.at);
            let wake = end.min(next_record).min(next_progress).min(next_event);
            tokio::select! {
                () = &mut interrupt => {
                    self.stage.event(Level::Warn, None, "interrupted");
                    return true;
                }
                () = sleep_until(wake) => {}
            }
            let now = Instant::now();
            if now >= next_progress {
                self.show(now - begin);
                next_progress = now + PROGRESS_EVERY;
            }
            while let Some(event) = events.next_if(|event| begin + event.at <= now) {
                self.command(event.bot, event.what);
            }
            // The last window is recorded by itself, at the end.
            if now >= next_record && now < end {
                self.record(self.stage.now_ms()).await;
                next_record += Duration::from_millis(SAMPLE_INTERVAL_MS);
            }
            if let Some(status) = self.server.as_mut().and_then(|server| server.ended()) {
                self.stage.fault(None, format!("the server ended in the middle ({status})"));
                self.show(now - begin);
                return false;
            }
            if now >= end {
                self.show(now - begin);
                return false;
            }
        }
    }

    fn show(&mut self, elapsed: Duration) {
        for note in self.stage.take_notes() {
            self.progress.note(&note);
        }
        let (connected, faults) = self.stage.standing();
        let (duration, people) = (self.scenario.duration, self.stage.people().len());
        self.progress.update(&Status { elapsed, duration, connected, people, faults });
    }

    fn command(&mut self, bot: u32, what: BotCommand) {
        if !self.stage.order(bot, what) {
            let text = format!("{what:?} could not be done: the bot is not there");
            self.stage.fault(Some(&format!("bot-{bot}")), text);
        }
    }

    pub(super) async fn record(&mut self, t_ms: u64) {
        let record = self.monitor.record(t_ms, (self.datagrams)()).await;
        self.stage.writer.machine(&record);
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
