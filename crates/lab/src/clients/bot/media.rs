//! One bot's media, sans-IO: what it sends, what it receives, and what it makes of both.
//!
//! Time is an argument and randomness comes from a seed, so the same calls make the same bytes.
//! [`BotMedia::agreed`] takes what SDP agreed on, [`BotMedia::install`] the keys; from then on
//! [`BotMedia::poll`] sends what is due and [`BotMedia::next_deadline`] says when to call it next.

mod receive;
mod reports;
mod state;

use super::fixtures::Clip;
use super::hearing::Window;
use super::marks::Marks;
use super::outgoing::{Outgoing, Sending, Source, Stream};
use super::rtcp::Compounds;
use super::slot::Slot;
use super::source::{AudioSource, VideoSource};
use super::talk::Talk;
use super::tones::Tone;
use crate::base::SplitMix;
use crate::observe::rows::add_sent;
use rtp::negotiated::{Codec, Direction, Kind, Line, MOST_LAYERS, Negotiated};
use rtp::rtcp;
use rtp::srtp::{KeyPair, Opener, Profile, Sealer, SrtpError};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::QualitySample;
use wire::event::SlotChange;

pub use super::outgoing::Clock;
pub use crate::record::MIX;
pub use state::{Config, Counters, Dropped, Opening};
use state::{Place, Secured, State};

/// Time between two reports (Chromium's for video).
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The same of who only listens, as Chromium's of sound.
const REPORT_INTERVAL_LISTENING: Duration = Duration::from_secs(5);
/// Time until the first report: lip-sync waits for it.
const FIRST_REPORT: Duration = Duration::from_millis(100);
/// Most changes kept for slots whose answer has not come yet.
const MAX_EARLY: usize = 1024;
/// Own tracks that may rest, and such that not all layers are wanted of.
const MAX_PAUSED: usize = 64;

/// One bot's media.
pub struct BotMedia(State);

impl BotMedia {
    /// A bot that neither sends nor receives yet.
    pub fn new(config: Config) -> Self {
        Self(State::new(config))
    }

    /// Takes an SRTP or SRTCP datagram that arrived at `now`. Errors: why it was dropped; it is
    /// counted.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8]) -> Result<(), Dropped> {
        receive::datagram(&mut self.0, now, datagram)
    }

    /// Says a tone in place of speech, by a plan, and in its turn checks what it hears of a mix.
    /// To be called before media begins.
    pub fn set_tone(&mut self, tone: Tone) {
        self.0.tone = Some(tone);
    }

    /// Says marks in its speech, and in its turn finds those of others in a mix. To be called before
    /// media begins.
    pub fn set_marks(&mut self, marks: Marks) {
        self.0.marks = Some(marks);
    }

    /// Speaks for a part of the time only. To be called before media begins.
    pub fn set_talk(&mut self, talk: Talk) {
        self.0.talk = Some(talk);
    }

    /// Begins the first sample's interval at `now`, for a bot that is made long after it joined.
    pub fn begin_sample(&mut self, now: Instant) {
        self.0.sample_begin = now;
    }

    /// Takes what the first or a later negotiation agreed on, and the ids of the own tracks
    /// (mid, track). Lines that are known stay as they are, unless they now go another way, too.
    pub fn agreed(&mut self, negotiated: &Negotiated, tracks: &[(String, String)], now: Instant) {
        self.0.tracks.extend(tracks.iter().cloned());
        for line in &negotiated.lines {
            match self.0.lines.iter_mut().find(|known| known.mid == line.mid) {
                Some(known) if (known.direction, known.remote) == (line.direction, line.remote) => {
                    continue;
                }
                Some(known) => *known = line.clone(),
                None => self.0.lines.push(line.clone()),
            }
            let receives = matches!(line.direction, Direction::Receive | Direction::Both);
            if receives {
                self.receive_on(line, now);
            }
        }
        let early = std::mem::take(&mut self.0.early);
        self.map_slots(&early, now);
        self.start_streams(now);
        self.rest();
    }

    /// ICE and DTLS are done: media begins.
    pub fn install(&mut self, keys: &KeyPair, now: Instant) {
        if self.0.secured.is_some() {
            return;
        }
        self.0.secured = Some(Secured {
            profile: keys.local.profile(),
            sealer: Sealer::new(&keys.local),
            opener: Opener::new(&keys.remote),
        });
        self.0.report_due = Some(now + FIRST_REPORT);
        self.start_streams(now);
        self.rest();
    }

    /// A line on which the other side sends: a slot of its own, and again the same one if it sends with other SSRCs now.
    fn receive_on(&mut self, line: &Line, now: Instant) {
        let known = self.0.slots.iter().position(|slot| slot.line.mid == line.mid);
        let index = known.unwrap_or(self.0.slots.len());
        match (self.0.slots.get_mut(index), line.remote) {
            (Some(slot), Some(ids)) if slot.ssrc != Some(ids.ssrc) => {
                slot.renew(line, now);
                self.0.places.retain(|(_, place)| place.slot != index);
            }
            (Some(_), _) => return,
            (None, _) => {
                self.0.slots.push(Slot::new(line));
                if line.codec.kind() == Kind::Video {
                    self.0.repaired.push(index);
                }
            }
        }
        let slot = &self.0.slots[index];
        let ssrcs = slot.ssrc.map(|ssrc| (ssrc, false)).into_iter();
        let ssrcs: Vec<_> = ssrcs.chain(slot.rtx_ssrc.map(|ssrc| (ssrc, true))).collect();
        for (ssrc, rtx) in ssrcs {
            self.0.set_place(ssrc, Place { slot: index, rtx });
        }
    }

    /// In so many steps what comes next is read ahead, each where the one before pointed.
    pub const WARM_STEPS: usize = 3;

    /// Reads a part of what a packet of sound needs that comes.
    pub fn warm_to_receive(&self, step: usize) -> u64 {
        let Some(secured) = &self.0.secured else { return 0 };
        match step {
            0 => {
                let lens = [self.0.places.len(), self.0.slots.len()].iter().sum::<usize>();
                lens as u64 + self.0.counters.received + self.0.feedback.pending()
            }
            1 => {
                let place = self.0.places.first().map_or(0, |(ssrc, _)| u64::from(*ssrc));
                place ^ secured.opener.warm() ^ self.0.feedback.warm()
            }
            _ => self.0.slots.iter().take(2).map(Slot::warm).sum(),
        }
    }

    /// Reads a part of what a packet of sound needs that goes.
    pub fn warm_to_send(&self, step: usize) -> u64 {
        match step {
            0 => self.0.sent.len() as u64 + u64::from(self.0.report_due.is_some()),
            step => self.0.sent.first().map_or(0, |outgoing| outgoing.warm(step - 1)),
        }
    }

    /// Begins to send on lines that have no stream yet, one of each kind.
    fn start_streams(&mut self, now: Instant) {
        let Some(secured) = &mut self.0.secured else { return };
        for line in &self.0.lines {
            let kind = line.codec.kind();
            let sends = matches!(line.direction, Direction::Send | Direction::Both);
            if !sends || self.0.sent.iter().any(|outgoing| outgoing.kind == kind) {
                continue;
            }
            let random = &mut self.0.random;
            let sources = match (line.codec, &self.0.config.voice, &self.0.config.clip) {
                (Codec::Opus, _, _) if self.0.tone.is_some() => {
                    let Some(tone) = self.0.tone.clone() else { continue };
                    vec![Source::Audio(AudioSource::tone(tone, random, now))]
                }
                (Codec::Opus, Some(voice), _) => {
                    let source = match self.0.marks.clone() {
                        Some(marks) => AudioSource::marked(voice.clone(), marks, random, now),
                        None => AudioSource::speech(voice.clone(), random, now),
                    };
                    vec![Source::Audio(source.with_talk(self.0.talk.clone()))]
                }
                (codec, _, Some(clip)) if codec == clip.codec => pictures(clip, line, random, now),
                _ => continue,
            };
            for (stream, source) in Stream::of(line).zip(sources) {
                match Outgoing::new(&stream, source, &mut secured.sealer, random, now) {
                    Ok(mut outgoing) => {
                        outgoing.stopped = self.0.stopped[kind as usize];
                        self.0.sent.push(outgoing);
                    }
                    Err(_) => self.0.counters.seal_errors += 1,
                }
            }
        }
    }

    /// Tells what is in which slot from now on. Changes of slots that no answer has agreed on yet
    /// wait for it.
    pub fn map_slots(&mut self, changes: &[SlotChange], now: Instant) {
        for change in changes {
            let Some(slot) = self.0.slots.iter_mut().find(|slot| slot.line.mid == change.slot)
            else {
                if self.0.early.len() < MAX_EARLY {
                    self.0.early.push(change.clone());
                } else {
                    *self.0.counters.drops.entry("early_slot_change").or_default() += 1;
                }
                continue;
            };
            let content = match change.mix {
                true => Some((String::new(), MIX.to_owned())),
                false => change.participant.clone().zip(change.track.clone()),
            };
            slot.map(content, change.rtp_timestamp, now);
            slot.pause(change.paused.is_some(), now);
        }
    }

    /// Sends no more of one kind, and tells nobody.
    pub fn stop(&mut self, kind: Kind) {
        self.0.stopped[kind as usize] = true;
        for outgoing in self.0.sent.iter_mut().filter(|outgoing| outgoing.kind == kind) {
            outgoing.stopped = true;
        }
    }

    /// Nobody has an own track in a slot, so that nothing of it is sent; or somebody has again, and
    /// gets a keyframe at once. It may be told before the answer that names the track.
    pub fn pause(&mut self, track: &str, paused: bool) {
        if !paused {
            self.0.paused.remove(track);
        } else if self.0.paused.len() < MAX_PAUSED {
            self.0.paused.insert(track.to_owned());
        }
        self.rest();
    }

    /// The highest layer that anybody wants of an own track, from 0 for the smallest picture: those above are not sent, and
    /// each begins with a keyframe at once when it is wanted again. It may be told before the answer that names the track.
    pub fn layers(&mut self, track: &str, layer: u8) {
        if usize::from(layer) + 1 >= MOST_LAYERS {
            self.0.layers.remove(track);
        } else if self.0.layers.len() < MAX_PAUSED || self.0.layers.contains_key(track) {
            self.0.layers.insert(track.to_owned(), layer);
        }
        self.rest();
    }

    /// What the server estimates that the way to here carries, in kbit/s; None: all that is sent, with ease.
    pub fn downlink(&mut self, estimate_kbps: Option<u32>) {
        self.0.estimate_kbps = estimate_kbps;
    }

    fn rest(&mut self) {
        let State { sent, tracks, paused, layers, .. } = &mut self.0;
        for outgoing in sent {
            let unwanted = |track: &String| {
                let highest = layers.get(track);
                paused.contains(track) || highest.is_some_and(|highest| outgoing.layer() > *highest)
            };
            let rests = tracks.get(outgoing.mid()).is_some_and(unwanted);
            outgoing.rest(rests);
        }
        self.0.urgent = true;
    }

    /// Says goodbye with the next [`BotMedia::poll`] and sends nothing from then on.
    pub fn leave(&mut self) {
        self.0.leaving = true;
    }

    /// Whether it is saying something: its audio has begun, and has not ended.
    pub fn speaks(&self) -> bool {
        let audio = self.0.sent.iter().find(|outgoing| outgoing.kind == Kind::Audio);
        !self.0.leaving && audio.is_some_and(Outgoing::on_air)
    }

    /// What it heard of the mix since the last call, to be judged by the plan.
    pub fn take_windows(&mut self) -> Vec<Window> {
        std::mem::take(&mut self.0.windows)
    }

    /// Whether goodbye has been said.
    pub fn left(&self) -> bool {
        self.0.gone
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        let mut counters = self.0.counters.clone();
        counters.keyframes_sent = self
            .0
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
        std::mem::take(&mut self.0.urgent)
    }

    /// When [`BotMedia::poll`] has something to do next; None before the keys and after leaving.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.0.secured.is_none() || self.0.gone {
            return None;
        }
        if self.0.leaving {
            return Some(self.0.config.joined);
        }
        let sent = self.0.sent.iter().filter_map(Outgoing::next_due);
        let slots = self.0.repaired.iter().filter_map(|index| self.0.slots[*index].next_due());
        let timers = [self.0.report_due, self.0.feedback_due].into_iter().flatten();
        sent.chain(slots).chain(timers).min()
    }

    /// Sends all that is due at `now`, one datagram a call of `sink`.
    pub fn poll(&mut self, now: Instant, sink: &mut dyn FnMut(&[u8])) {
        if self.0.gone || self.try_poll(now, sink).is_ok() {
            return;
        }
        self.0.counters.seal_errors += 1;
    }

    fn try_poll(&mut self, now: Instant, sink: &mut dyn FnMut(&[u8])) -> Result<(), SrtpError> {
        let Some(secured) = &mut self.0.secured else { return Ok(()) };
        if self.0.leaving {
            self.0.gone = true;
            let ssrcs: Vec<u32> = self.0.sent.iter().map(|outgoing| outgoing.ssrc).collect();
            let mut bye = Vec::new();
            rtcp::receiver_report(&mut bye, ssrcs.first().copied().unwrap_or(self.0.own_ssrc), &[]);
            let ssrcs = if ssrcs.is_empty() { vec![self.0.own_ssrc] } else { ssrcs };
            rtcp::bye(&mut bye, &ssrcs);
            let mut compounds = Compounds::new(&mut secured.sealer, sink);
            compounds.add(&bye)?;
            return compounds.flush();
        }
        let mut sending = Sending {
            sealer: &secured.sealer,
            clock: self.0.config.clock,
            transport_sequence: &mut self.0.transport_sequence,
            now,
            // In a mix others are heard by what is in their sound.
            pads: self.0.marks.is_none(),
            sink: &mut *sink,
        };
        for outgoing in &mut self.0.sent {
            outgoing.poll(&mut sending)?;
        }
        reports::poll_feedback(&mut self.0, now, sink)?;
        if self.0.report_due.is_some_and(|due| due <= now) {
            self.0.report_due = Some(now + self.report_interval());
            reports::report(&mut self.0, now, sink)?;
        }
        Ok(())
    }

    fn report_interval(&self) -> Duration {
        let sees = |slot: &Slot| slot.line.codec.kind() == Kind::Video;
        match self.0.sent.is_empty() && !self.0.slots.iter().any(sees) {
            true => REPORT_INTERVAL_LISTENING,
            false => REPORT_INTERVAL,
        }
    }

    /// The sample of the interval since the last one (or since joining).
    pub fn sample(&mut self, now: Instant) -> QualitySample {
        let begin = std::mem::replace(&mut self.0.sample_begin, now);
        let interval = now.saturating_duration_since(begin);
        let joined = self.0.config.joined;
        let since_join = |at: Instant| at.saturating_duration_since(joined).as_secs_f64() * 1000.0;
        let rtt = std::mem::take(&mut self.0.rtt);
        let mut sample = QualitySample {
            at_ms: now.saturating_duration_since(joined).as_millis() as u64,
            interval_ms: interval.as_millis() as u64,
            rtt_ms: (rtt.count > 0).then(|| rtt.sum_ms / f64::from(rtt.count)),
            estimate_kbps: self.0.estimate_kbps.map(f64::from),
            srtp_cipher: self.0.secured.as_ref().map(|secured| cipher_name(secured.profile).into()),
            ..QualitySample::default()
        };
        if let (Some(at), false) = (self.0.first_audio, self.0.first_told.0) {
            self.0.first_told.0 = true;
            sample.join_to_first_audio_ms = Some(since_join(at));
        }
        if let (Some(at), false) = (self.0.first_frame, self.0.first_told.1) {
            self.0.first_told.1 = true;
            sample.join_to_first_frame_ms = Some(since_join(at));
        }
        for outgoing in &mut self.0.sent {
            if let Some(track) = self.0.tracks.get(outgoing.mid()) {
                add_sent(&mut sample.sent, outgoing.sample(track, interval));
            }
        }
        if let (Some(ears), Some(marks)) = (&mut self.0.ears, &self.0.marks) {
            let mix = self.0.slots.iter_mut().find(|slot| slot.is_mix());
            let outcomes = ears.judge(marks, now);
            mix.into_iter().for_each(|mix| mix.note_marks(&outcomes));
        }
        for slot in &mut self.0.slots {
            slot.sample(begin, now, &mut sample.received);
        }
        crate::observe::mos::fill(&mut sample);
        sample
    }
}

/// What is shown on the streams of a line.
fn pictures(clip: &Arc<Clip>, line: &Line, random: &mut SplitMix, now: Instant) -> Vec<Source> {
    let sources = match line.layers.len() {
        0 => vec![VideoSource::new(clip.clone(), random, now)],
        layers => VideoSource::of_layers(clip, layers, random, now),
    };
    sources.into_iter().map(|source| Source::Video(Box::new(source))).collect()
}

/// The profile's name in the registry of DTLS-SRTP, as browsers tell it.
fn cipher_name(profile: Profile) -> &'static str {
    match profile {
        Profile::AeadAes256Gcm => "AEAD_AES_256_GCM",
        Profile::AeadAes128Gcm => "AEAD_AES_128_GCM",
        Profile::Aes128CmHmacSha1_80 => "AES_CM_128_HMAC_SHA1_80",
    }
}
