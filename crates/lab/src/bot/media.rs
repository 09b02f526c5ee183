//! One bot's media, sans-IO: what it sends, what it receives, and what it makes of both.
//!
//! Time is an argument and randomness comes from a seed, so the same calls make the same bytes.
//! [`BotMedia::agreed`] takes what SDP agreed on, [`BotMedia::install`] the keys; from then on
//! [`BotMedia::poll`] sends what is due and [`BotMedia::next_deadline`] says when to call it next.

mod receive;
mod reports;

use super::SplitMix;
use super::fixtures::{Clip, Voice};
use super::hearing::{Hearing, Window};
use super::marks::{Ears, Marks};
use super::outgoing::{Outgoing, Sending, Source};
use super::rtcp::Compounds;
use super::slot::Slot;
use super::source::{AudioSource, VideoSource};
use super::talk::Talk;
use super::tones::Tone;
use rtp::negotiated::{Codec, Direction, Kind, Line, Negotiated};
use rtp::rtcp;
use rtp::srtp::{KeyPair, Opener, Profile, Sealer, SrtpError};
use rtp::twcc::FeedbackBuilder;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::QualitySample;
use wire::event::SlotChange;

pub use super::outgoing::Clock;
pub use super::slot::MIX;
pub use receive::Opening;

/// Time between two reports (Chromium's for video).
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The same of who only listens, as Chromium's of sound.
const REPORT_INTERVAL_LISTENING: Duration = Duration::from_secs(5);
/// Time until the first report: lip-sync waits for it.
const FIRST_REPORT: Duration = Duration::from_millis(100);
/// Time from a packet to the transport-wide feedback that tells of it, where there are many.
const FEEDBACK_INTERVAL: Duration = Duration::from_millis(100);
/// Most changes kept for slots whose answer has not come yet.
const MAX_EARLY: usize = 1024;
/// Own tracks that may rest.
const MAX_PAUSED: usize = 64;
/// Windows of the mix kept until they are taken.
const MAX_WINDOWS: usize = 64;
/// Longest datagram that is opened.
const MAX_RECEIVED: usize = 2048;

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

/// Where an SSRC belongs.
#[derive(Debug, Clone, Copy)]
struct Place {
    slot: usize,
    rtx: bool,
}

#[derive(Debug, Default)]
struct Rtt {
    sum_ms: f64,
    count: u32,
}

/// Keys, once they are there.
struct Secured {
    profile: Profile,
    sealer: Sealer,
    opener: Opener,
}

/// One bot's media.
pub struct BotMedia {
    config: Config,
    /// What it says in place of the voice.
    tone: Option<Tone>,
    /// The marks in what it says, and in what it hears of a mix.
    marks: Option<Marks>,
    /// When it speaks, where that is not all the time.
    talk: Option<Talk>,
    /// Its ears for marks, while it is its turn to listen.
    ears: Option<Ears>,
    /// Its ears, while it is its turn to check the mix.
    hearing: Option<Hearing>,
    windows: Vec<Window>,
    random: SplitMix,
    secured: Option<Secured>,
    lines: Vec<Line>,
    /// Track ids by mid.
    tracks: BTreeMap<String, String>,
    sent: Vec<Outgoing>,
    slots: Vec<Slot>,
    /// What is in slots that are not known yet: the message overtook the answer.
    early: Vec<SlotChange>,
    /// Where each SSRC belongs, in order of SSRC.
    places: Vec<(u32, Place)>,
    /// Slots of pictures: alone they ask for anything again.
    repaired: Vec<usize>,
    transport_sequence: u16,
    feedback: FeedbackBuilder,
    feedback_due: Option<Instant>,
    /// When the first packet came that feedback is due for.
    feedback_begun: Option<Instant>,
    /// Whether something came that may have to be answered sooner than was planned.
    urgent: bool,
    last_media_ssrc: u32,
    own_ssrc: u32,
    report_due: Option<Instant>,
    sample_begin: Instant,
    rtt: Rtt,
    first_audio: Option<Instant>,
    first_frame: Option<Instant>,
    first_told: (bool, bool),
    stopped: [bool; 2],
    /// Own tracks that nobody has in a slot.
    paused: BTreeSet<String>,
    leaving: bool,
    gone: bool,
    counters: Counters,
}

impl BotMedia {
    /// A bot that neither sends nor receives yet.
    pub fn new(config: Config) -> Self {
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
            first_audio: None,
            first_frame: None,
            first_told: (false, false),
            stopped: [false; 2],
            paused: BTreeSet::new(),
            leaving: false,
            gone: false,
            counters: Counters::default(),
            config,
        }
    }

    /// Says a tone in place of speech, by a plan, and in its turn checks what it hears of a mix.
    /// To be called before media begins.
    pub fn set_tone(&mut self, tone: Tone) {
        self.tone = Some(tone);
    }

    /// Says marks in its speech, and in its turn finds those of others in a mix. To be called before
    /// media begins.
    pub fn set_marks(&mut self, marks: Marks) {
        self.marks = Some(marks);
    }

    /// Speaks for a part of the time only. To be called before media begins.
    pub fn set_talk(&mut self, talk: Talk) {
        self.talk = Some(talk);
    }

    /// Begins the first sample's interval at `now`, for one who joined long before he was made.
    pub fn begin_sample(&mut self, now: Instant) {
        self.sample_begin = now;
    }

    /// Takes what the first or a later negotiation agreed on, and the ids of the own tracks
    /// (mid, track). Lines that are known stay as they are, unless they now go another way, too.
    pub fn agreed(&mut self, negotiated: &Negotiated, tracks: &[(String, String)], now: Instant) {
        self.tracks.extend(tracks.iter().cloned());
        for line in &negotiated.lines {
            match self.lines.iter_mut().find(|known| known.mid == line.mid) {
                Some(known) if known.direction == line.direction => continue,
                Some(known) => *known = line.clone(),
                None => self.lines.push(line.clone()),
            }
            let receives = matches!(line.direction, Direction::Receive | Direction::Both);
            if receives && !self.slots.iter().any(|slot| slot.line.mid == line.mid) {
                self.add_slot(line);
            }
        }
        let early = std::mem::take(&mut self.early);
        self.map_slots(&early, now);
        self.start_streams(now);
        self.rest();
    }

    /// ICE and DTLS are done: media begins.
    pub fn install(&mut self, keys: &KeyPair, now: Instant) {
        if self.secured.is_some() {
            return;
        }
        self.secured = Some(Secured {
            profile: keys.local.profile(),
            sealer: Sealer::new(&keys.local),
            opener: Opener::new(&keys.remote),
        });
        self.report_due = Some(now + FIRST_REPORT);
        self.start_streams(now);
        self.rest();
    }

    fn add_slot(&mut self, line: &Line) {
        let slot = Slot::new(line);
        let index = self.slots.len();
        let ssrcs = slot.ssrc.map(|ssrc| (ssrc, false)).into_iter();
        for (ssrc, rtx) in ssrcs.chain(slot.rtx_ssrc.map(|ssrc| (ssrc, true))) {
            self.set_place(ssrc, Place { slot: index, rtx });
        }
        if line.codec.kind() == Kind::Video {
            self.repaired.push(index);
        }
        self.slots.push(slot);
    }

    fn place(&self, ssrc: u32) -> Option<Place> {
        let at = self.places.binary_search_by_key(&ssrc, |(known, _)| *known).ok()?;
        Some(self.places[at].1)
    }

    fn set_place(&mut self, ssrc: u32, place: Place) {
        match self.places.binary_search_by_key(&ssrc, |(known, _)| *known) {
            Ok(at) => self.places[at].1 = place,
            Err(at) => self.places.insert(at, (ssrc, place)),
        }
    }

    /// In so many steps what comes next is read ahead, each where the one before pointed.
    pub const WARM_STEPS: usize = 3;

    /// Reads a part of what a packet of sound needs that comes.
    pub fn warm_to_receive(&self, step: usize) -> u64 {
        let Some(secured) = &self.secured else { return 0 };
        match step {
            0 => {
                let lens = [self.places.len(), self.slots.len()].iter().sum::<usize>();
                lens as u64 + self.counters.received + self.feedback.pending()
            }
            1 => {
                let place = self.places.first().map_or(0, |(ssrc, _)| u64::from(*ssrc));
                place ^ secured.opener.warm() ^ self.feedback.warm()
            }
            _ => self.slots.iter().take(2).map(Slot::warm).sum(),
        }
    }

    /// Reads a part of what a packet of sound needs that goes.
    pub fn warm_to_send(&self, step: usize) -> u64 {
        match step {
            0 => self.sent.len() as u64 + u64::from(self.report_due.is_some()),
            step => self.sent.first().map_or(0, |outgoing| outgoing.warm(step - 1)),
        }
    }

    /// Begins to send on lines that have no stream yet, one of each kind.
    fn start_streams(&mut self, now: Instant) {
        let Some(secured) = &mut self.secured else { return };
        for line in &self.lines {
            let kind = line.codec.kind();
            let sends = matches!(line.direction, Direction::Send | Direction::Both);
            if !sends || self.sent.iter().any(|outgoing| outgoing.kind == kind) {
                continue;
            }
            let random = &mut self.random;
            let source = match (line.codec, &self.config.voice, &self.config.clip) {
                (Codec::Opus, _, _) if self.tone.is_some() => {
                    let Some(tone) = self.tone.clone() else { continue };
                    Source::Audio(AudioSource::tone(tone, random, now))
                }
                (Codec::Opus, Some(voice), _) => {
                    let source = match self.marks.clone() {
                        Some(marks) => AudioSource::marked(voice.clone(), marks, random, now),
                        None => AudioSource::speech(voice.clone(), random, now),
                    };
                    Source::Audio(source.with_talk(self.talk.clone()))
                }
                (Codec::Vp8, _, Some(clip)) => {
                    Source::Video(Box::new(VideoSource::new(clip.clone(), random, now)))
                }
                _ => continue,
            };
            match Outgoing::new(line, source, &mut secured.sealer, random, now) {
                Ok(Some(mut outgoing)) => {
                    outgoing.stopped = self.stopped[kind as usize];
                    self.sent.push(outgoing);
                }
                Ok(None) => {}
                Err(_) => self.counters.seal_errors += 1,
            }
        }
    }

    /// Tells what is in which slot from now on. Changes of slots that no answer has agreed on yet
    /// wait for it.
    pub fn map_slots(&mut self, changes: &[SlotChange], now: Instant) {
        for change in changes {
            let Some(slot) = self.slots.iter_mut().find(|slot| slot.line.mid == change.slot) else {
                if self.early.len() < MAX_EARLY {
                    self.early.push(change.clone());
                } else {
                    *self.counters.drops.entry("early_slot_change").or_default() += 1;
                }
                continue;
            };
            let content = match change.mix {
                true => Some((String::new(), MIX.to_owned())),
                false => change.participant.clone().zip(change.track.clone()),
            };
            slot.map(content, change.rtp_timestamp, now);
        }
    }

    /// Sends no more of one kind, and tells nobody.
    pub fn stop(&mut self, kind: Kind) {
        self.stopped[kind as usize] = true;
        for outgoing in self.sent.iter_mut().filter(|outgoing| outgoing.kind == kind) {
            outgoing.stopped = true;
        }
    }

    /// Nobody has an own track in a slot, so that nothing of it is sent; or somebody has again, and
    /// gets a keyframe at once. It may be told before the answer that names the track.
    pub fn pause(&mut self, track: &str, paused: bool) {
        if !paused {
            self.paused.remove(track);
        } else if self.paused.len() < MAX_PAUSED {
            self.paused.insert(track.to_owned());
        }
        self.rest();
    }

    fn rest(&mut self) {
        for outgoing in &mut self.sent {
            let track = self.tracks.get(outgoing.mid());
            outgoing.rest(track.is_some_and(|track| self.paused.contains(track)));
        }
        self.urgent = true;
    }

    /// Says goodbye with the next [`BotMedia::poll`] and sends nothing from then on.
    pub fn leave(&mut self) {
        self.leaving = true;
    }

    /// Whether it is saying something: its audio has begun, and has not ended.
    pub fn speaks(&self) -> bool {
        let audio = self.sent.iter().find(|outgoing| outgoing.kind == Kind::Audio);
        !self.leaving && audio.is_some_and(Outgoing::on_air)
    }

    /// What it heard of the mix since the last call, to be judged by the plan.
    pub fn take_windows(&mut self) -> Vec<Window> {
        std::mem::take(&mut self.windows)
    }

    /// Whether goodbye has been said.
    pub fn left(&self) -> bool {
        self.gone
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters.clone();
        counters.keyframes_sent = self
            .sent
            .iter()
            .map(|outgoing| match &outgoing.source {
                Source::Video(video) => video.keyframes(),
                Source::Audio(_) => 0,
            })
            .sum();
        counters
    }

    /// Whether what came since the last call may have brought [`BotMedia::next_deadline`] nearer.
    pub fn take_urgent(&mut self) -> bool {
        std::mem::take(&mut self.urgent)
    }

    /// When [`BotMedia::poll`] has something to do next; None before the keys and after leaving.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.secured.is_none() || self.gone {
            return None;
        }
        if self.leaving {
            return Some(self.config.joined);
        }
        let sent = self.sent.iter().filter_map(Outgoing::next_due);
        let slots = self.repaired.iter().filter_map(|index| self.slots[*index].next_due());
        let timers = [self.report_due, self.feedback_due].into_iter().flatten();
        sent.chain(slots).chain(timers).min()
    }

    /// Sends all that is due at `now`, one datagram a call of `sink`.
    pub fn poll(&mut self, now: Instant, sink: &mut dyn FnMut(&[u8])) {
        if self.gone || self.try_poll(now, sink).is_ok() {
            return;
        }
        self.counters.seal_errors += 1;
    }

    fn try_poll(&mut self, now: Instant, sink: &mut dyn FnMut(&[u8])) -> Result<(), SrtpError> {
        let Some(secured) = &mut self.secured else { return Ok(()) };
        if self.leaving {
            self.gone = true;
            let ssrcs: Vec<u32> = self.sent.iter().map(|outgoing| outgoing.ssrc).collect();
            let mut bye = Vec::new();
            rtcp::receiver_report(&mut bye, ssrcs.first().copied().unwrap_or(self.own_ssrc), &[]);
            let ssrcs = if ssrcs.is_empty() { vec![self.own_ssrc] } else { ssrcs };
            rtcp::bye(&mut bye, &ssrcs);
            let mut compounds = Compounds::new(&mut secured.sealer, sink);
            compounds.add(&bye)?;
            return compounds.flush();
        }
        let mut sending = Sending {
            sealer: &secured.sealer,
            clock: self.config.clock,
            transport_sequence: &mut self.transport_sequence,
            now,
            sink: &mut *sink,
        };
        for outgoing in &mut self.sent {
            outgoing.poll(&mut sending)?;
        }
        self.poll_feedback(now, sink)?;
        if self.report_due.is_some_and(|due| due <= now) {
            self.report_due = Some(now + self.report_interval());
            self.report(now, sink)?;
        }
        Ok(())
    }

    fn report_interval(&self) -> Duration {
        let sees = |slot: &Slot| slot.line.codec.kind() == Kind::Video;
        match self.sent.is_empty() && !self.slots.iter().any(sees) {
            true => REPORT_INTERVAL_LISTENING,
            false => REPORT_INTERVAL,
        }
    }

    /// The sample of the interval since the last one (or since joining).
    pub fn sample(&mut self, now: Instant) -> QualitySample {
        let begin = std::mem::replace(&mut self.sample_begin, now);
        let interval = now.saturating_duration_since(begin);
        let joined = self.config.joined;
        let since_join = |at: Instant| at.saturating_duration_since(joined).as_secs_f64() * 1000.0;
        let rtt = std::mem::take(&mut self.rtt);
        let mut sample = QualitySample {
            at_ms: now.saturating_duration_since(joined).as_millis() as u64,
            interval_ms: interval.as_millis() as u64,
            rtt_ms: (rtt.count > 0).then(|| rtt.sum_ms / f64::from(rtt.count)),
            srtp_cipher: self.secured.as_ref().map(|secured| cipher_name(secured.profile).into()),
            ..QualitySample::default()
        };
        if let (Some(at), false) = (self.first_audio, self.first_told.0) {
            self.first_told.0 = true;
            sample.join_to_first_audio_ms = Some(since_join(at));
        }
        if let (Some(at), false) = (self.first_frame, self.first_told.1) {
            self.first_told.1 = true;
            sample.join_to_first_frame_ms = Some(since_join(at));
        }
        for outgoing in &mut self.sent {
            if let Some(track) = self.tracks.get(outgoing.mid()) {
                sample.sent.push(outgoing.sample(track, interval));
            }
        }
        if let (Some(ears), Some(marks)) = (&mut self.ears, &self.marks) {
            let mix = self.slots.iter_mut().find(|slot| slot.is_mix());
            let outcomes = ears.judge(marks, now);
            mix.into_iter().for_each(|mix| mix.note_marks(&outcomes));
        }
        for slot in &mut self.slots {
            slot.sample(begin, now, &mut sample.received);
        }
        crate::mos::fill(&mut sample);
        sample
    }
}

/// The profile's name in the registry of DTLS-SRTP, as browsers tell it.
fn cipher_name(profile: Profile) -> &'static str {
    match profile {
        Profile::AeadAes256Gcm => "AEAD_AES_256_GCM",
        Profile::AeadAes128Gcm => "AEAD_AES_128_GCM",
        Profile::Aes128CmHmacSha1_80 => "AES_CM_128_HMAC_SHA1_80",
    }
}
