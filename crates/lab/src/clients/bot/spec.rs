//! The boundary to the native bots: what the lab asks of a bot, and what a bot hands back.
//!
//! A bot is a participant without a browser. Signaling is the lab's ([`crate::people::person`]); media,
//! from the SDP offer to the sample, is the driver's, one thread that owns all bots' sockets.

pub use super::words::{AudioSource, Lacks, Media, VideoSource};
use crate::clients::bot::marks::{MarkRole, SaidMarks};
use crate::clients::bot::talk::TalkRole;
use crate::clients::bot::tones::ToneRole;
use crate::record::MixWindows;
use rtp::Protocol;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;
use wire::QualitySample;
use wire::event::SlotChange;
use wire::room::{Answer, MediaKind, OfferedTrack, VideoCodec};

/// A pool of slots: `recvonly` lines of the offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotPool {
    /// Audio slots.
    pub audio: u32,
    /// Video slots.
    pub video: u32,
}

impl Default for SlotPool {
    fn default() -> Self {
        Self { audio: 4, video: 12 }
    }
}

/// A connection of a mesh: straight to another member, both ways on each line unless it only receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The other member's participant id.
    pub other: String,
    /// Kinds that go by the mesh; a line each.
    pub kinds: Vec<MediaKind>,
    /// Whether it only receives: a server's connection for what a publisher sends.
    pub receives_only: bool,
    /// The own tracks, as announced.
    pub own: Vec<(MediaKind, String)>,
    /// When its person asked to join: times to first audio and frame count from here.
    pub joined: Instant,
}

/// What a bot is to be.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BotSpec {
    /// Its name, such as `bot-3`.
    pub name: String,
    /// Its number over all rooms, from 1: chooses voice and offset.
    pub index: u32,
    /// What it sends.
    pub media: Media,
    /// The codec of what it sends and receives as video.
    pub video_codec: VideoCodec,
    /// What it goes by to the server.
    pub protocol: Protocol,
    /// Its first slots.
    pub slots: SlotPool,
    /// Whether its voice and what its audio slot receives share one line, both ways.
    pub one_line: bool,
    /// Its part in the room's plan of tones, where it says [`AudioSource::Tone`].
    pub tones: Option<ToneRole>,
    /// Its part in the marks of its room, where the room mixes.
    pub marks: Option<MarkRole>,
    /// What it does not have.
    pub lacks: Lacks,
    /// How much it speaks; none: all the time.
    pub talk: Option<TalkRole>,
    /// Where it is one of a mesh's connections, and not one with the server.
    pub link: Option<Link>,
}

/// A bot's SDP offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BotOffer {
    /// The SDP.
    pub sdp: String,
    /// Which line sends which track.
    pub tracks: Vec<OfferedTrack>,
}

/// What a scenario can make a bot do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BotCommand {
    /// Send no more video, and tell nobody.
    StopVideo,
    /// Send no more audio, and tell nobody.
    StopAudio,
    /// Leave: send no more media and close the sockets.
    Leave,
}

/// A bot's media failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BotError(String);

impl BotError {
    /// An error with its cause in words.
    pub fn new(cause: impl Into<String>) -> Self {
        Self(cause.into())
    }
}

impl fmt::Display for BotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BotError {}

/// The thread that owns all bots.
pub trait BotDriver: Send + Sync + 'static {
    /// A bot.
    type Handle: BotHandle;

    /// Makes a bot. Its clock (`at_ms`, `join_to_first_…_ms`) starts here: call it at the moment
    /// of asking to join.
    fn add(&self, spec: BotSpec) -> Result<Self::Handle, BotError>;

    /// How late the timers of its threads were since this was asked last (p99), in ms; none where no timer fired. A verdict
    /// needs it: late bots measure themselves.
    fn take_timer_lag_ms_p99(&self) -> Option<f64> {
        None
    }

    /// The same from the start.
    fn timer_lag_ms_p99(&self) -> Option<f64> {
        None
    }

    /// Datagrams that its bots have sent and received so far; none where it does not count them.
    fn datagrams(&self) -> Option<(u64, u64)> {
        None
    }

    /// The marks that its bots say in mixed rooms; none where they say none.
    fn marks(&self) -> Option<SaidMarks> {
        None
    }

    /// What it could not send, take or open so far, by reason.
    fn drops(&self) -> BTreeMap<&'static str, u64> {
        BTreeMap::new()
    }
}

/// A bot; dropping the handle ends it.
pub trait BotHandle: Send + Sync + 'static {
    /// Makes an SDP offer; only one may be pending. Its tracks are those it sends, by line.
    fn offer(&self) -> impl Future<Output = Result<BotOffer, BotError>> + Send;
    /// Takes the offer of another member of a mesh, whose tracks it gives by line; the answer
    /// likewise. Later candidates of that member come by [`BotHandle::candidate`].
    fn accept(&self, offer: Answer) -> impl Future<Output = Result<BotOffer, BotError>> + Send;
    /// Takes a candidate of the other member of a mesh, in the words of
    /// `RTCIceCandidate.candidate`.
    fn candidate(&self, candidate: String);
    /// Takes the answer to the pending offer: from the server with the ids of the own tracks, from
    /// another member of a mesh with those of the member.
    fn answer(&self, answer: Answer) -> impl Future<Output = Result<(), BotError>> + Send;
    /// Tells what is in which slot from now on.
    fn slots(&self, changes: Vec<SlotChange>);
    /// Tells whether a track of its own rests because nobody has it in a slot.
    fn pause(&self, track: String, paused: bool);
    /// Tells the highest layer that anybody wants of a track of its own, from 0 for the smallest picture.
    fn layers(&self, track: String, layer: u8);
    /// Tells what the server estimates that the way to it carries, in kbit/s; None: all that is sent, with ease.
    fn downlink(&self, estimate_kbps: Option<u32>);
    /// Asks for this many slots in all; they are in the next offer.
    fn grow(&self, audio: u32, video: u32);
    /// Makes the bot do something.
    fn command(&self, command: BotCommand);
    /// Waits until ICE and DTLS are done.
    fn connected(&self) -> impl Future<Output = Result<(), BotError>> + Send;
    /// The sample of the interval since the last call; `participant` is left empty.
    fn sample(&self) -> impl Future<Output = Result<QualitySample, BotError>> + Send;
    /// What it heard of a room's mix since the last call, judged by the plan of tones.
    fn heard(&self) -> impl Future<Output = Result<MixWindows, BotError>> + Send;
}
