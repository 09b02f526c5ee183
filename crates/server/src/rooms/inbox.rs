//! What media and control threads report: one task takes it to the rooms. It also takes participants out whose socket
//! or media was lost for too long.

use super::{Happened, RoomInput, Rooms, State, locked};
use engine::room::Effects;
use engine::{PersonKey, Report};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use wire::Event;
use wire::event::LeaveReason;

/// A participant outlives their socket, or their media, by this much.
const LINGER: Duration = Duration::from_secs(60);
/// One who neither had media nor sends any outlives their socket by this much: nobody would miss them.
const LINGER_WITHOUT_MEDIA: Duration = Duration::from_secs(15);
/// How often rooms are searched for participants who are lost.
const SWEEP: Duration = Duration::from_secs(1);
/// How often the people of a room are told how many are in its audience, if that changes.
const NUMBERS: Duration = Duration::from_millis(500);

impl Rooms {
    /// Runs until the queue's senders are gone.
    pub(crate) async fn run_inbox(self: Arc<Self>, mut inputs: mpsc::Receiver<RoomInput>) {
        let mut sweep = tokio::time::interval(SWEEP);
        let mut numbers = tokio::time::interval(NUMBERS);
        numbers.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                input = inputs.recv() => match input {
                    Some(input) => self.input(input),
                    None => return,
                },
                _ = sweep.tick() => self.sweep(Instant::now()),
                _ = numbers.tick() => self.tell_numbers(),
            }
        }
    }

    pub(super) fn input(&self, input: RoomInput) {
        let (person, what) = match input {
            RoomInput::Report(report) => return self.report(report),
            RoomInput::Transport(person, what) => (person, what),
        };
        // They may have left meanwhile.
        let Some(cell) = self.cell_of(person) else { return };
        let (room, participant) = (&cell.id, super::notices::participant_id(person));
        let mut state = locked(&cell.state);
        let member = state.members.get_mut(&person);
        match what {
            Happened::Connected(remote) => {
                tracing::info!(room, participant, %remote, "media connected");
                if let Some(member) = member {
                    member.had_media = true;
                }
            }
            Happened::Moved(remote) => {
                tracing::info!(room, participant, %remote, "media moved");
            }
            Happened::MediaLost => {
                tracing::info!(room, participant, "media lost");
                if let Some(member) = member {
                    member.media_lost.get_or_insert_with(Instant::now);
                }
            }
            Happened::MediaBack => {
                tracing::info!(room, participant, "media is back");
                if let Some(member) = member {
                    member.media_lost = None;
                }
            }
            Happened::Failed(cause, why) => {
                let advice = cause.advice();
                tracing::warn!(
                    room,
                    participant,
                    cause = cause.as_str(),
                    why,
                    advice,
                    "media failed"
                );
                let message = advice.to_owned();
                cell.tell_one(&state, person, Event::MediaFailed { cause, message });
                drop(state);
                self.leave(&cell, person, LeaveReason::MediaLost);
            }
            Happened::NotUp(cause) => {
                let (advice, name) = (cause.advice(), cause.as_str());
                tracing::warn!(room, participant, cause = name, advice, "media is not up yet");
                let message = advice.to_owned();
                cell.tell_one(&state, person, Event::MediaFailed { cause, message });
            }
        }
    }

    fn report(&self, report: Report) {
        let key = match &report {
            Report::Switched { room, .. }
            | Report::Rests { room, .. }
            | Report::Layers { room, .. }
            | Report::Downlink { room, .. }
            | Report::Speakers { room, .. } => *room,
        };
        let cell = locked(&self.table).by_key.get(&key).cloned();
        let Some(cell) = cell else { return };
        let mut state = locked(&cell.state);
        let mut effects = Effects::default();
        state.room.report(report, &mut effects);
        cell.apply(&mut state, effects, LeaveReason::Left);
    }

    /// Tells the people of all rooms how many came and left of an audience since the last call.
    fn tell_numbers(&self) {
        let cells: Vec<_> = locked(&self.table).by_id.values().cloned().collect();
        for cell in cells {
            let mut state = locked(&cell.state);
            let count = state.count();
            if let Some(event) = state.audience.news(count) {
                cell.tell_now(&state, event);
            }
        }
    }

    /// Takes participants out who were lost for too long, and ends rooms that waited for their first one for too long.
    pub(super) fn sweep(&self, now: Instant) {
        let cells: Vec<_> = locked(&self.table).by_id.values().cloned().collect();
        for cell in cells {
            let over = |since: Option<Instant>, most| {
                since.is_some_and(|at| now.saturating_duration_since(at) >= most)
            };
            let mut state = locked(&cell.state);
            if state.reserved_until.is_some_and(|until| now >= until) {
                drop(state);
                self.end_unused(&cell);
                continue;
            }
            let State { room, members, .. } = &mut *state;
            let lost: Vec<(PersonKey, LeaveReason)> = members
                .iter_mut()
                .filter_map(|(person, member)| {
                    if !member.is_held(*person) {
                        // No call leaves such a seat. If one ever does, the seat ends like one whose socket was lost.
                        self.metrics.dropped("rooms", "seat_not_held");
                        tracing::error!(room = cell.id, ?person, "nobody holds this seat");
                        (member.socket, member.socket_lost) = (None, Some(now));
                    }
                    // Members of a mesh have media that the server does not see.
                    let sends = || room.person(*person).is_some_and(|one| !one.tracks.is_empty());
                    let stays = member.had_media || sends();
                    let linger = if stays { LINGER } else { LINGER_WITHOUT_MEDIA };
                    if over(member.socket_lost, linger) {
                        Some((*person, LeaveReason::SignalingLost))
                    } else if over(member.media_lost, LINGER) {
                        Some((*person, LeaveReason::MediaLost))
                    } else {
                        None
                    }
                })
                .collect();
            drop(state);
            for (person, reason) in lost {
                self.leave(&cell, person, reason);
            }
        }
    }
}
