//! What one media thread runs: the way of a packet.
//!
//! 1. A datagram ([`datagram`]) is STUN, DTLS, SRTP or SRTCP. STUN and DTLS go up to the control thread if [`transports`]
//!    knows their participant; [`consent`] answers a check that only asks whether we are still here. The source address
//!    of SRTP and SRTCP tells whose it is.
//! 2. [`intake`] bounds what one participant sends. [`glance`] leaves quiet packets of mixed rooms closed; [`incoming`] opens any other SRTP packet once, with its sender's keys. The SSRC tells the track. The track's stream
//!    ([`encoding`], and [`reception`] on the publisher's shard) notes arrival, loss, frames and levels, of media,
//!    retransmissions and padding alike. [`restore`] takes sound that did not come from its copy in a packet after it.
//! 3. The opened packets of a batch wait in the [`queue`], and then go to one subscriber after the other ([`forward`]).
//!    The subscriber's slot decides what becomes of each (make before break: a video slot switches with a keyframe).
//!    [`crate::egress`] says what the way to a participant carries and what leaves now. [`fit`] tells it of their pictures. It
//!    gives slots the layers that the egress chose, those within a stream too ([`scalable`]). [`layers`] tells publishers
//!    which layers anybody wants. [`bursts`] sends what waited. [`shortage`] stops pictures when the CPU is short.
//!    A packet of a mixed track goes to the mixer instead: [`mixing`] hands it over, and sends mixed packets to the listeners. [`relay`] is the way to and from the other shards.
//! 4. [`deliver`] is the last step of them all: [`rewrite`] continues the slot's own counters, and the packet is built
//!    and sealed in the buffer that the sink lends; sound carries a copy of the packet before it ([`rtp::red`]) while its
//!    receiver loses packets.
//! 5. [`history`] keeps each publisher's video once, in plaintext. [`requests`] reads what receivers ask for, [`resend`]
//!    sends packets again within the bounds of the egress. [`feedback`] sends reports, requests for missing packets and keyframes ([`keyframe`]), and arrivals.
//! 6. [`voices`] tells who speaks ([`speaker`]; [`claim`] measures whether that is true). [`lately`] keeps how a speech
//!    began if slots are short. [`stats`] and [`crate::drops`] count everything.
//!
//! Underneath is plain state: [`model`] holds people ([`person`]), their slots ([`slot`]) and tracks ([`track`]). A
//! [`turn`] carries what else a step needs.

mod bar;
mod bursts;
mod challenges;
mod claim;
mod consent;
mod datagram;
mod deliver;
mod encoding;
mod feedback;
mod fit;
mod forward;
mod gaps;
mod glance;
mod history;
mod incoming;
mod index;
mod intake;
mod keyframe;
mod lately;
mod layers;
mod level;
mod meter;
mod mixing;
mod model;
mod moving;
mod nearby;
mod packet;
mod person;
mod pictures;
mod queue;
mod reception;
mod relay;
mod repeat;
mod requests;
mod resend;
mod restore;
mod rewrite;
mod scalable;
mod shortage;
mod slot;
mod speaker;
mod spreading;
mod stats;
mod track;
mod transports;
mod turn;
mod voices;

pub use crate::relay::{RelayContent, RelayControl, RelayPacket};
pub use datagram::{Datagram, Handled};
pub use stats::Stats;

use crate::clock::Now;
use crate::command::{Command, PersonKey, Report, ShardIndex, StreamKey};
use crate::drops::InDrop;
use crate::limits::{FEEDBACK_TICKS, TICK, TICK_CALM};
use crate::mix::{Bar, MixedPacket};
use crate::sink::{Priority, Sink};
use feedback::Scratch;
use model::Model;
use relay::Imports;
use rtp::header::{self, Kind};
use rtp::negotiated;
use rtp::stun;
use shortage::Shortage;
use std::time::Instant;
use transports::Transports;
use turn::Turn;
use voices::Voices;

/// The people, tracks and subscriptions of one media thread.
#[derive(Default)]
pub struct Shard {
    index: ShardIndex,
    shards: u16,
    model: Model,
    /// Whose STUN and DTLS goes up.
    transports: Transports,
    imports: Imports,
    voices: Voices,
    ticks: Ticks,
    shortage: Shortage,
    scratch: Scratch,
    reports: Vec<Report>,
    stats: Stats,
}

/// When the periodic work is due.
#[derive(Default)]
struct Ticks {
    next: Option<Instant>,
    /// When the last tick was.
    last: Option<Instant>,
    count: usize,
}

impl Ticks {
    /// Something is missing or wanted: the next tick comes soon.
    #[inline]
    fn hurry(&mut self) {
        let soon = self.last.map(|at| at + TICK);
        self.next = self.next.map(|at| soon.map_or(at, |soon| at.min(soon)));
    }
}

/// The model and a turn of the shard, side by side.
macro_rules! turn {
    ($shard:ident, $now:expr, $sink:expr) => {{
        let Shard { model, stats, reports, shortage, .. } = $shard;
        (model, &mut Turn { now: $now, sink: $sink, stats, reports, shortage })
    }};
}

impl Shard {
    /// An empty shard, one of `shards`.
    pub fn new(index: ShardIndex, shards: u16) -> Self {
        Self { index, shards, ..Self::default() }
    }

    /// The same shard, which takes a path to carry `start_bps` bits a second until feedback tells more.
    #[must_use]
    pub fn starting_at(mut self, start_bps: u64) -> Self {
        self.model.start_bps = Some(start_bps);
        self
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Takes what is to be reported to rooms.
    pub fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    /// When [`Shard::handle_timeout`] is to run next. None if nobody is here and no speaker is left to report.
    pub fn next_deadline(&self) -> Option<Instant> {
        let dues = self.ticks.next.into_iter().chain(self.model.bursts.due);
        dues.chain(self.model.spreading.due()).min()
    }

    /// How many people, tracks and subscriptions are here.
    pub fn sizes(&self) -> (usize, usize, usize) {
        let tracks = self.model.tracks.iter().flatten();
        let subscriptions = tracks.map(|track| track.subscriptions.len()).sum();
        (self.model.person_by_key.len(), self.model.track_by_key.len(), subscriptions)
    }

    /// Who is here.
    pub fn people(&self) -> impl Iterator<Item = PersonKey> {
        self.model.person_by_key.keys().copied()
    }

    /// What the slots of a person carry: the line, the stream that flows, and the stream that the slot waits for.
    pub fn slots(
        &self,
        person: PersonKey,
    ) -> impl Iterator<Item = (&str, Option<StreamKey>, Option<StreamKey>)> {
        let index = self.model.person_by_key.get(&person);
        let slots = index.and_then(|index| self.model.people[*index].as_ref());
        let key = |track: usize| self.model.tracks[track].as_ref().map(|track| track.key);
        slots.into_iter().flat_map(|person| &person.slots).map(move |slot| {
            (slot.line.mid.as_str(), slot.current.and_then(key), slot.pending.and_then(key))
        })
    }

    /// How much is kept of people, tracks and rooms, by name. All is 0 once everybody has left and that was reported.
    pub fn kept(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let others = [
            ("transports", self.transports.kept()),
            ("speakers", self.voices.speakers.kept()),
            ("imported tracks", self.imports.len()),
        ];
        self.model.kept().into_iter().chain(others)
    }

    /// The round-trip time to a person in milliseconds, if their reports told it.
    pub fn rtt_ms(&self, person: PersonKey) -> Option<f64> {
        self.model.people[*self.model.person_by_key.get(&person)?].as_ref()?.rtt_ms
    }

    /// What the path to a person is estimated to carry, in bits a second. None if that is not known.
    pub fn estimate_bps(&self, person: PersonKey, now: Instant) -> Option<u64> {
        self.model.people[*self.model.person_by_key.get(&person)?]
            .as_ref()?
            .egress
            .estimate_bps(now)
    }

    /// A batch of datagrams came in.
    pub fn handle_batch<'a>(
        &mut self,
        now: Now,
        batch: impl IntoIterator<Item = Datagram<'a>>,
        sink: &mut impl Sink,
        mut handled: impl FnMut(&Datagram<'_>, Handled),
    ) {
        let mut first = true;
        for datagram in batch {
            if std::mem::take(&mut first) {
                // The first datagram is the oldest: it tells how long packets wait until they are read.
                let wait = now.at.saturating_duration_since(datagram.arrival);
                self.shortage.waited(now.at, wait);
                self.stats.without_pictures_eighths = self.shortage.eighths();
            }
            let outcome = self.handle_datagram(now, &datagram, sink);
            handled(&datagram, outcome);
        }
        self.flush(now, sink);
    }

    /// A datagram came in. What it brings for subscribers leaves with [`Shard::flush`].
    pub fn handle_datagram(
        &mut self,
        now: Now,
        datagram: &Datagram<'_>,
        sink: &mut impl Sink,
    ) -> Handled {
        let outcome = match datagram.data {
            [first, second, ..] => match header::classify(*first) {
                Kind::Stun if self.answer_check(now, datagram, sink) => Ok(Handled::Check),
                kind @ (Kind::Stun | Kind::Dtls) => self.hand_up(now, kind, datagram, sink),
                Kind::SrtpOrSrtcp => {
                    let rtcp = header::is_rtcp(*second);
                    self.stats.came(rtcp, datagram.data.len());
                    match self.handle_media(now, rtcp, datagram, sink) {
                        Err(InDrop::UnknownSource) => self.handle_moved(now, rtcp, datagram, sink),
                        outcome => outcome,
                    }
                }
                _ => Err(InDrop::NotMedia),
            },
            _ => Err(InDrop::NotMedia),
        };
        outcome.unwrap_or_else(|reason| {
            self.stats.in_drops.add(reason);
            Handled::Dropped(reason)
        })
    }

    /// STUN and DTLS go up to the control thread if they are a participant's. Strangers' datagrams end here.
    fn hand_up(
        &mut self,
        now: Now,
        kind: Kind,
        datagram: &Datagram<'_>,
        sink: &mut impl Sink,
    ) -> Result<Handled, InDrop> {
        let Self { model, transports, stats, .. } = self;
        let answered = || stun::is_success(datagram.data);
        let person = match kind {
            Kind::Stun if answered() => {
                moving::answered(model, transports, stats, now.at, datagram)
                    .ok_or(InDrop::StunNotAsked)?
            }
            Kind::Stun => {
                let person = transports.check(now.at, datagram)?;
                moving::checked(model, transports, now.at, person, datagram);
                transports.send_challenges(now.at, sink, stats);
                person
            }
            _ => transports.dtls(now.at, datagram)?,
        };
        sink.control(person, datagram.source, datagram.data);
        Ok(Handled::Control)
    }

    /// Answers a check that changes nothing, and says whether it did. A check from another address may be a
    /// nomination. A check of a participant who was taken for gone is their return. Both go to the ICE agent.
    fn answer_check(&mut self, now: Now, datagram: &Datagram<'_>, sink: &mut impl Sink) -> bool {
        let answered = self.try_answer(now, datagram, sink).is_some();
        if answered {
            self.transports.seen(datagram.source, now.at);
            self.stats.checks += 1;
        }
        answered
    }

    fn try_answer(
        &mut self,
        now: Now,
        datagram: &Datagram<'_>,
        sink: &mut impl Sink,
    ) -> Option<()> {
        let index = *self.model.person_by_address.get(&datagram.source)?;
        let secure = self.model.people[index].as_mut()?.secure.as_mut()?;
        let able = secure.begun && secure.reached && !secure.lost;
        let checks = secure.checks.as_mut().filter(|_| able)?;
        let slot = sink.slot(datagram.source, Priority::High)?;
        let len = checks.answer(now.at, datagram, slot)?;
        sink.commit(len);
        secure.heard_at = now.at;
        Some(())
    }

    /// A packet of media from an address of nobody may be a participant's who moved. It is taken as if it had come from where
    /// they were, which stays their address until this one has answered.
    fn handle_moved(
        &mut self,
        now: Now,
        rtcp: bool,
        datagram: &Datagram<'_>,
        sink: &mut impl Sink,
    ) -> Result<Handled, InDrop> {
        let Self { model, transports, stats, scratch, .. } = self;
        let plain = scratch.plain();
        let source = moving::stranger(model, transports, stats, now.at, (datagram, plain))
            .ok_or(InDrop::UnknownSource)?;
        transports.send_challenges(now.at, sink, stats);
        let heard_at = model.secure_at(source).map(|secure| secure.heard_at);
        let outcome = self.handle_media(now, rtcp, &Datagram { source, ..*datagram }, sink);
        // From there itself nothing came.
        if let (Some(secure), Some(heard_at)) = (self.model.secure_at(source), heard_at) {
            secure.heard_at = heard_at;
        }
        outcome
    }

    fn handle_media(
        &mut self,
        now: Now,
        rtcp: bool,
        datagram: &Datagram<'_>,
        sink: &mut impl Sink,
    ) -> Result<Handled, InDrop> {
        let (model, turn) = turn!(self, now, sink);
        if rtcp {
            let scratch = &mut self.scratch;
            return requests::handle_rtcp(model, turn, datagram, scratch).map(|()| Handled::Rtcp);
        }
        if glance::glance(model, turn, datagram).is_some() {
            return Ok(Handled::Quiet);
        }
        let received = incoming::handle_rtp(model, turn, datagram, &mut self.voices.sampler)?;
        self.voices.began |= received.speech_began;
        if received.hurry {
            self.ticks.hurry();
        }
        match received.dropped {
            Some(reason) => Err(reason),
            None if received.audio => Ok(Handled::Audio),
            None => Ok(Handled::Video),
        }
    }

    /// A packet came over the media lane. It waits with others until [`Shard::flush`].
    pub fn handle_relayed(&mut self, now: Now, packet: &RelayPacket<'_>, sink: &mut impl Sink) {
        self.stats.relay_in += 1;
        let (model, turn) = turn!(self, now, sink);
        if let Err(reason) = relay::take_relayed(model, turn, packet, &mut self.voices.sampler) {
            self.stats.in_drops.add(reason);
        }
    }

    /// Forwards what is queued: after a batch of datagrams or of relayed packets.
    pub fn flush(&mut self, now: Now, sink: &mut impl Sink) {
        let (model, turn) = turn!(self, now, sink);
        forward::flush(model, turn);
    }

    /// A message came over the control lane.
    pub fn handle_relay_control(&mut self, message: RelayControl) {
        match message {
            RelayControl::Keyframe { stream } => {
                if let Some(track) = self.model.track(stream) {
                    track.encoding.keyframe.want();
                    self.ticks.hurry();
                }
            }
            RelayControl::Wanted { track, to } => {
                if let Some(track) = self.model.track(track.stream()) {
                    track.asked_by(to);
                }
            }
            RelayControl::Layers { track, to, carried, wish } => {
                layers::wanted_there(&mut self.model, track, to, (carried, wish));
            }
            RelayControl::Rates { track, bps } => layers::told(&mut self.model, track, bps),
            RelayControl::Clock { stream, rtp_timestamp, at_ns } => {
                if let Some(track) = self.model.track(stream) {
                    track.encoding.reference = Some((rtp_timestamp, at_ns));
                }
            }
            RelayControl::Speaking { room, from, speakers } => {
                self.voices.speakers.elsewhere(room, from, speakers);
                self.voices.began = true;
            }
        }
    }

    /// The mixer made a packet. The first copies of it leave, the others with [`Shard::handle_timeout`].
    pub fn handle_mixed(&mut self, now: Now, packet: &MixedPacket, sink: &mut impl Sink) {
        let (model, turn) = turn!(self, now, sink);
        mixing::mixed(model, turn, packet);
    }

    /// The mixer told who is heard, and how loud others must be.
    pub fn handle_bar(&mut self, now: Now, bar: &Bar) {
        glance::told(&mut self.model, bar, now.at);
    }

    /// The periodic work that is due.
    pub fn handle_timeout(&mut self, now: Now, sink: &mut impl Sink) {
        let (model, turn) = turn!(self, now, sink);
        bursts::pace(model, turn);
        mixing::spread(model, turn);
        self.transports.send_challenges(now.at, turn.sink, turn.stats);
        if self.ticks.next.is_none_or(|at| now.at < at) {
            return;
        }
        self.ticks.last = Some(now.at);
        self.ticks.count = self.ticks.count.wrapping_add(1);
        layers::settle(model, turn, self.index);
        let calm = !feedback::ask_publishers(model, turn, &mut self.scratch);
        self.ticks.next = Some(now.at + if calm { TICK_CALM } else { TICK });
        // Calm ticks are few: if there are pictures, each tick serves everybody.
        let turns = if calm && !model.pictures.is_empty() { 1 } else { FEEDBACK_TICKS };
        let nth = (self.ticks.count % turns, turns);
        feedback::send_reports(model, turn, nth, &mut self.scratch);
        let due = self.voices.is_due(now.at);
        self.imports.ask(model, turn, self.index, due);
        if due || self.voices.began {
            self.voices.tell(model, turn, (self.index, self.shards));
        }
        turn.stats.check();
        // Ticks go on until it is reported that a speaker has left.
        if model.person_by_key.is_empty() && self.voices.speakers.kept() == 0 {
            self.ticks.next = None;
        }
    }

    /// A room's command.
    pub fn command(&mut self, command: Command, now: Now, sink: &mut impl Sink) {
        // What waits names tracks and listeners by their places, and a command may give these to others.
        let (model, turn) = turn!(self, now, sink);
        forward::flush(model, turn);
        mixing::finish(model, turn);
        if self.apply(command, now).is_none() {
            self.stats.stale_commands += 1;
        }
        self.transports.send_challenges(now.at, sink, &mut self.stats);
        self.ticks.hurry();
    }

    fn apply(&mut self, command: Command, now: Now) -> Option<()> {
        let model = &mut self.model;
        match command {
            Command::Lines { person, room, negotiated } => {
                let index = model.person_entry(person, room, now);
                self.ticks.next.get_or_insert(now.at + TICK);
                model.people[index].as_mut().map(|person| person.add_lines(&negotiated))
            }
            Command::Expect { person, responder, challenger } => {
                self.transports.expect(person, (*responder, *challenger), now.at);
                Some(())
            }
            Command::Forget { person } => self.transports.forget(person),
            Command::Install { person, keys, remote, reached } => {
                model.install(person, &keys, (remote, reached), now.at)?;
                if !reached {
                    self.transports.challenge_checked((person, remote), now.at);
                }
                Some(())
            }
            Command::Begin { person } => model.begin(person),
            Command::Suspend { person } => model.suspend_person(person),
            Command::Credentials { person, responder } => model.credentials(person, *responder),
            Command::Move { person, remote } => {
                moving::nominated(model, &mut self.transports, now.at, (person, remote))
            }
            Command::AddTrack { track, person, mid, mixed, opaque, precedence } => {
                model.add_track(track, person, &mid, (mixed, opaque), now.at)?;
                model.precede(track, precedence)
            }
            Command::Import { track, from, line, opaque, precedence, .. } => {
                if line.codec.kind() == negotiated::Kind::Audio {
                    self.imports.add(track, from);
                }
                model.import(track, from, line, opaque);
                model.precede(track, precedence)
            }
            Command::Precedence { track, precedence } => model.precede(track, precedence),
            Command::Export { track, to, on } => {
                let streams: Vec<_> = model.layers(track).collect();
                for index in &streams {
                    model.tracks[*index].as_mut()?.export(to, on);
                }
                (!streams.is_empty()).then_some(())
            }
            Command::Keep { track, on } => {
                model.track(track.stream())?.encoding.keep_lately(on);
                Some(())
            }
            Command::Silence { track, on } => model.silence(track, on),
            Command::MapMix { person, mid } => model.map_mix(person, &mid),
            Command::RemoveTrack { track } => {
                self.imports.remove(track);
                model.remove_track(track)
            }
            Command::Map { person, mid, track } => model.map_slot(person, &mid, track),
            Command::Show { person, mid, shown } => model.show(person, &mid, shown),
            Command::Remove { person } => model.remove_person(person),
        }
    }
}
