//! Where somebody goes in a run and what for, and how that may fail.

use super::mesh;
use crate::clients::bot::marks::{MarkRole, Turn};
use crate::clients::bot::spec::{BotSpec, SlotPool};
use crate::clients::bot::talk::TalkRole;
use crate::clients::bot::tones::{LOUD, TonePlan, ToneRole};
use crate::clients::bot::words::{AudioSource, Lacks, Media, VideoSource};
use crate::clients::seat::SignalingError;
use crate::judge::expected::Listener;
use crate::people::stage::Stage;
use crate::record::{PersonKind, PersonMeta, Span};
use crate::scenario::{Role, RoomGroup};
use std::fmt;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use wire::quality::SAMPLE_INTERVAL_MS;
use wire::room::{AudioTopology, MediaKind, VideoTopology};

pub(super) fn sampling() -> Interval {
    let period = Duration::from_millis(SAMPLE_INTERVAL_MS);
    let mut ticks = interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Waits for the end of the run.
pub(super) async fn ended(end: &mut watch::Receiver<bool>) {
    // An error means that the stage is gone: the run has ended too.
    let _ = end.wait_for(|end| *end).await;
}

/// Where someone goes, and what for.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// The room's id.
    pub room: String,
    /// What kind of room it is.
    pub group: RoomGroup,
    /// What this person is there for, if the room's bots have roles.
    pub role: Option<Role>,
    /// Whether this person sends video, or only watches.
    pub sends_video: bool,
    /// This person's turn to say marks, if the room's people do; see [`MarkRole`].
    pub turn: Option<Turn>,
    /// This person's place among the bots of all rooms that mix, who listen for marks in turn; none: they say no
    /// marks and listen for none.
    pub listening: Option<Turn>,
    /// How many others of the room may be heard.
    pub voices: u32,
    /// Which of the scenario's networks is before this person, if any.
    pub network: Option<usize>,
}

impl Place {
    /// A listener who from now on should receive what the others send. In a mixed room all voices are one.
    pub(super) fn listener(
        &self,
        stage: &Stage,
        name: &str,
        id: &str,
        show: Option<u32>,
    ) -> Listener {
        Listener {
            room: self.room.clone(),
            person: name.to_owned(),
            participant: id.to_owned(),
            present: Span { from_ms: stage.now_ms(), until_ms: None },
            mix: self.group.audio == AudioTopology::Mcu && !self.lacks().sound,
            max_audio: self.lacks().sound.then_some(0),
            max_video: show,
        }
    }

    /// The first slots of a bot: one for a mix, none for what does not come from the server.
    pub(super) fn slots(&self, asked: SlotPool) -> SlotPool {
        SlotPool {
            audio: match self.group.audio {
                _ if self.lacks().sound => 0,
                AudioTopology::Mcu => 1,
                AudioTopology::Sfu => asked.audio,
                AudioTopology::Mesh => 0,
            },
            video: if self.group.video == VideoTopology::Sfu { asked.video } else { 0 },
        }
    }

    /// Kinds of media that go through the server.
    pub(super) fn kinds(&self) -> Vec<MediaKind> {
        let by_mesh = mesh::kinds(&self.group);
        [MediaKind::Audio, MediaKind::Video]
            .into_iter()
            .filter(|kind| !by_mesh.contains(kind))
            .filter(|kind| *kind == MediaKind::Audio || self.group.video != VideoTopology::None)
            .collect()
    }

    /// Someone of this place, in the words of the record.
    pub fn person(&self, name: &str, kind: PersonKind) -> PersonMeta {
        PersonMeta {
            name: name.to_owned(),
            kind,
            room: self.room.clone(),
            role: self.role.as_ref().map(|role| role.name.clone()),
            network: self.network,
            participant: None,
        }
    }

    /// A number of the room's own (FNV-1a).
    pub(super) fn seed(&self) -> u64 {
        self.room.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    }

    /// A bot's part in the marks of a room that mixes: what is heard there passed through the mixer.
    pub(super) fn marks(&self, spec: &BotSpec) -> Option<MarkRole> {
        let bots = self.group.bots.max(1);
        let place = spec.index.saturating_sub(1) % bots;
        let heard = self.turn.is_some() || self.voices > 0;
        let mixed = self.group.audio == AudioTopology::Mcu && heard;
        let listening = self.listening.filter(|_| mixed)?;
        Some(MarkRole { room: self.seed(), place, listening, turn: self.turn })
    }

    /// What a bot does not have.
    pub fn lacks(&self) -> Lacks {
        self.role.as_ref().map_or_else(Lacks::default, |role| role.lacks)
    }

    /// How much a bot speaks, if that is not all the time.
    pub(super) fn talk(&self, spec: &BotSpec, round: u64) -> Option<TalkRole> {
        let role = self.role.as_ref()?;
        let (speaks_pct, in_turn) = (role.speaks_pct, role.in_turn.then_some(spec.index));
        let seed = u64::from(spec.index) << 32 ^ round;
        (speaks_pct < 100.0).then_some(TalkRole { seed, speaks_pct, in_turn })
    }

    /// What a bot sends of what the scenario's bots send.
    pub fn media(&self, media: Media) -> Media {
        let silent = self.role.as_ref().is_some_and(|role| !role.audio);
        let hidden = !self.sends_video || self.group.video == VideoTopology::None;
        Media {
            audio: if silent { AudioSource::None } else { media.audio },
            video: if hidden { VideoSource::None } else { media.video },
        }
    }

    /// A bot's part in the room's plan of tones. The bots of a room have consecutive numbers, so each
    /// gets a place of its own. What is heard can be judged only if nobody but bots speaks.
    pub(super) fn tones(&self, spec: &BotSpec) -> Option<ToneRole> {
        let (bots, seed) = (self.group.bots.max(1), self.seed());
        let listens = self.group.audio == AudioTopology::Mcu && self.group.chromium == 0;
        (spec.media.audio == AudioSource::Tone).then_some(ToneRole {
            plan: TonePlan { seed, bots, loud: LOUD, alternate: self.group.alternate },
            place: spec.index.saturating_sub(1) % bots,
            listens,
        })
    }
}

/// Why someone could not come in or stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// One word, to count by: an error code of the server, or what did not work.
    pub(super) reason: &'static str,
    /// The whole sentence.
    pub(super) text: String,
}

impl Failure {
    pub(super) fn new(reason: &'static str, text: impl Into<String>) -> Self {
        Self { reason, text: text.into() }
    }

    pub(super) fn of_call(what: &str, error: &SignalingError) -> Self {
        let reason = match error {
            SignalingError::Connect(_) => "no_connection",
            SignalingError::Closed(_) => "socket_closed",
            SignalingError::Timeout(_) => "no_answer",
            SignalingError::Refused(error) => error.code.as_str(),
            SignalingError::Foreign { .. } => "refused",
            SignalingError::Malformed(_) => "malformed",
        };
        Self::new(reason, format!("{what}{error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
