//! What a bot's media is made of and what it knows: plain state, which receiving and reporting work on.

use crate::base::SplitMix;
use crate::clients::bot::fixtures::{Clip, Voice};
use crate::clients::bot::hearing::{Hearing, Window};
use crate::clients::bot::marks::{Ears, Marks};
use crate::clients::bot::outgoing::{Clock, Outgoing};
use crate::clients::bot::slot::Slot;
use crate::clients::bot::talk::Talk;
use crate::clients::bot::tones::Tone;
use rtp::negotiated::Line;
use rtp::srtp::{Opener, Profile, Sealer, SrtpError};
use rtp::twcc::FeedbackBuilder;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;
use wire::event::SlotChange;

/// What a bot's media is.
#[derive(Debug, Clone)]
pub struct Config {
    /// Everything random comes from this.
    pub seed: u64,
    /// Canonical name in RTCP.
    pub cname: String,
    /// What it says.
    pub voice: Option<Arc<Voice>>,
    /// What it shows.
    pub clip: Option<Arc<Clip>>,
    /// When it asked to join: samples count from here.
    pub joined: Instant,
    /// The wall clock.
    pub clock: Clock,
    /// Which packets of sound it opens.
    pub opening: Opening,
}

/// Why a datagram was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// It came before the keys.
    NoKeys,
    /// It is longer than any packet of this session.
    TooLong,
    /// It could not be opened.
    Srtp(SrtpError),
    /// Nobody knows its SSRC.
    UnknownSource,
    /// It was opened and is no packet of its format.
    Malformed,
}

impl Dropped {
    /// The reason's name, for counters.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoKeys => "no_keys",
            Self::TooLong => "too_long",
            Self::Srtp(SrtpError::Replayed | SrtpError::TooOld) => "srtp_replayed",
            Self::Srtp(_) => "srtp_refused",
            Self::UnknownSource => "unknown_source",
            Self::Malformed => "malformed",
        }
    }
}

/// What a bot has done since it began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// RTP packets received, copies and those sent again not among them.
    pub received: u64,
    /// Packets received that were sent again.
    pub received_rtx: u64,
    /// RTP packets received of which only the header was read.
    pub received_closed: u64,
    /// RTP packets received in a slot that had no track (yet).
    pub received_unmapped: u64,
    /// Packets asked for again.
    pub nacked: u64,
    /// Keyframes asked for.
    pub keyframes_asked: u64,
    /// Keyframes sent.
    pub keyframes_sent: u64,
    /// Packets that could not be sealed: a fault of our own.
    pub seal_errors: u64,
    /// Datagrams dropped, by [`Dropped::as_str`].
    pub drops: BTreeMap<&'static str, u64>,
}

/// Which packets of sound a bot opens. Pictures are always opened: whether a frame is whole stands
/// in its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// All.
    All,
    /// In one turn of `of` those of everyone whose `place` it is; of the rest the headers, which
    /// tell loss, jitter and delay. What a bot listens to is always opened.
    InTurn {
        /// Its place among those who take turns, from 0.
        place: u32,
        /// How many turns there are (at least 1).
        of: u32,
    },
}

/// Where an SSRC belongs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) slot: usize,
    pub(super) rtx: bool,
}

#[derive(Debug, Default)]
pub(super) struct Rtt {
    pub(super) sum_ms: f64,
    pub(super) count: u32,
}

/// Keys, once they are there.
pub(super) struct Secured {
    pub(super) profile: Profile,
    pub(super) sealer: Sealer,
    pub(super) opener: Opener,
}

/// All that a bot's media knows.
pub(super) struct State {
    pub(super) config: Config,
    /// What it says in place of the voice.
    pub(super) tone: Option<Tone>,
    /// The marks in what it says, and in what it hears of a mix.
    pub(super) marks: Option<Marks>,
    /// When it speaks, where that is not all the time.
    pub(super) talk: Option<Talk>,
    /// Its ears for marks, while it is its turn to listen.
    pub(super) ears: Option<Ears>,
    /// Its ears, while it is its turn to check the mix.
    pub(super) hearing: Option<Hearing>,
    pub(super) windows: Vec<Window>,
    pub(super) random: SplitMix,
    pub(super) secured: Option<Secured>,
    pub(super) lines: Vec<Line>,
    /// Track ids by mid.
    pub(super) tracks: BTreeMap<String, String>,
    pub(super) sent: Vec<Outgoing>,
    pub(super) slots: Vec<Slot>,
    /// What is in slots that are not known yet: the message overtook the answer.
    pub(super) early: Vec<SlotChange>,
    /// Where each SSRC belongs, in order of SSRC.
    pub(super) places: Vec<(u32, Place)>,
    /// Slots of pictures: alone they ask for anything again.
    pub(super) repaired: Vec<usize>,
    pub(super) transport_sequence: u16,
    pub(super) feedback: FeedbackBuilder,
    pub(super) feedback_due: Option<Instant>,
    /// When the first packet came that feedback is due for.
    pub(super) feedback_begun: Option<Instant>,
    /// Whether something came that may have to be answered sooner than was planned.
    pub(super) urgent: bool,
    pub(super) last_media_ssrc: u32,
    pub(super) own_ssrc: u32,
    pub(super) report_due: Option<Instant>,
    pub(super) sample_begin: Instant,
    pub(super) rtt: Rtt,
    /// The longest round-trip time lately.
    pub(super) longest_rtt_ms: Option<f64>,
    pub(super) first_audio: Option<Instant>,
    pub(super) first_frame: Option<Instant>,
    pub(super) first_told: (bool, bool),
    pub(super) stopped: [bool; 2],
    /// Own tracks that nobody has in a slot.
    pub(super) paused: BTreeSet<String>,
    /// The highest layer that anybody wants of an own track, where that is not told to be all of them.
    pub(super) layers: BTreeMap<String, u8>,
    /// What the server estimates that the way to here carries.
    pub(super) estimate_kbps: Option<u32>,
    pub(super) leaving: bool,
    pub(super) gone: bool,
    pub(super) counters: Counters,
}

impl State {
    /// A bot that neither sends nor receives yet.
    pub(super) fn new(config: Config) -> Self {
        let mut random = SplitMix(config.seed);
        let own_ssrc = random.next() as u32 | 1;
        Self {
            random,
            secured: None,
            lines: Vec::new(),
            tracks: BTreeMap::new(),
            sent: Vec::new(),
            slots: Vec::new(),
            early: Vec::new(),
            places: Vec::new(),
            repaired: Vec::new(),
            transport_sequence: 1,
            feedback: FeedbackBuilder::new(),
            feedback_due: None,
            feedback_begun: None,
            urgent: false,
            last_media_ssrc: 0,
            own_ssrc,
            tone: None,
            marks: None,
            talk: None,
            ears: None,
            hearing: None,
            windows: Vec::new(),
            report_due: None,
            sample_begin: config.joined,
            rtt: Rtt::default(),
            longest_rtt_ms: None,
            first_audio: None,
            first_frame: None,
            first_told: (false, false),
            stopped: [false; 2],
            paused: BTreeSet::new(),
            layers: BTreeMap::new(),
            estimate_kbps: None,
            leaving: false,
            gone: false,
            counters: Counters::default(),
            config,
        }
    }

    pub(super) fn place(&self, ssrc: u32) -> Option<Place> {
        let at = self.places.binary_search_by_key(&ssrc, |(known, _)| *known).ok()?;
        Some(self.places[at].1)
    }

    pub(super) fn set_place(&mut self, ssrc: u32, place: Place) {
        match self.places.binary_search_by_key(&ssrc, |(known, _)| *known) {
            Ok(at) => self.places[at].1 = place,
            Err(at) => self.places.insert(at, (ssrc, place)),
        }
    }
}
