//! Who speaks on this shard, told to the rooms.

use super::claim::Sampler;
use super::model::Model;
use super::speaker::Speakers;
use super::turn::Turn;
use crate::command::ShardIndex;
use crate::limits::{SPEAKER_INTERVAL, VOICE_LASTS};
use crate::relay::RelayControl;
use crate::sink::Sink;
use std::time::Instant;

/// The voices of a shard.
#[derive(Default)]
pub(super) struct Voices {
    pub speakers: Speakers,
    /// Measures whether levels are true.
    pub sampler: Sampler,
    /// Who speaks may have changed: the next tick tells.
    pub began: bool,
    due: Option<Instant>,
}

impl Voices {
    /// Whether it is time to look who speaks, even if nobody began.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.due.is_none_or(|at| now >= at);
        if due {
            self.due = Some(now + SPEAKER_INTERVAL);
        }
        due
    }

    /// Tells who speaks. A room whose last report was too recent is told with a later tick.
    pub(super) fn tell<S: Sink>(
        &mut self,
        model: &Model,
        turn: &mut Turn<'_, S>,
        (index, shards): (ShardIndex, u16),
    ) {
        let now = turn.now;
        let speaking = model.tracks.iter().flatten().filter_map(|track| {
            // A publisher who stopped sending reports no silence either.
            let (_, last) = track.encoding.newest?;
            let lasts = now.unix.saturating_sub(last) < VOICE_LASTS;
            let level = track.encoding.voice.level_dbov();
            let level = level.filter(|_| lasts && !track.silenced)?;
            let person = model.people[track.publisher()?].as_ref()?;
            Some((person.room, person.key, level))
        });
        self.speakers.spoke(speaking.collect());
        let Turn { sink, reports, .. } = turn;
        self.began =
            self.speakers.tell((index, shards), now.at, reports, |home, room, speakers| {
                sink.relay_control(home, RelayControl::Speaking { room, from: index, speakers });
            });
    }
}
