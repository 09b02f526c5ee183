//! One bot at run time, or one connection of a mesh: its socket, its ICE and DTLS, its media.

use super::begin::{candidates, media, offered, own_lines, rtp_kind, with_layers};
use super::port::{Port, Work};
use super::shared::{Common, Health, Reply, Says};
use super::stream::{Stream, passive_candidate};
use crate::clients::bot::hearing::judge;
use crate::clients::bot::media::BotMedia;
use crate::clients::bot::spec::{BotCommand, BotError, BotOffer, BotSpec, SlotPool};
use crate::clients::bot::tones::Tone;
use crate::record::{Fault, MixWindows};
use net::{Datagram, RecvBatch};
use rtp::negotiated::{Direction, Kind, Negotiated};
use rtp::{Protocol, TransportAddress};
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};
use transport::{Event, IceDtls, OfferLine, Output, TransportError, VideoFormat};
use wire::QualitySample;
use wire::event::SlotChange;
use wire::room::{Answer, OfferedTrack, VideoCodec};

/// A bot is not served again sooner than this by a timer.
const SHORTEST_WAIT: Duration = Duration::from_micros(100);
/// Most candidates that wait for the SDP they belong to.
const MAX_CANDIDATES: usize = 64;

enum State {
    /// Not connected yet; since the answer, if it came.
    Joining(Option<Instant>),
    Connected,
    Failed(String),
    Left,
}

pub(super) struct Peer {
    pub(super) port: Port,
    pub(super) armed: Option<Instant>,
    pub(super) wanted: SlotPool,
    pub(super) waiters: Vec<Reply<()>>,
    common: Arc<Common>,
    spec: BotSpec,
    tone: Option<Tone>,
    /// Whether others of the room are told that it speaks.
    on_air: bool,
    /// What it heard of the mix since it was last asked.
    heard: MixWindows,
    connect_timeout: Duration,
    local: SocketAddr,
    ice: Option<IceDtls>,
    /// When ICE and DTLS want to be called; None: now.
    ice_at: Option<Instant>,
    media: BotMedia,
    state: State,
    remote: Option<TransportAddress>,
    /// Whether an offer was accepted.
    negotiated: bool,
    /// Slots of the accepted offers.
    pool: SlotPool,
    /// Slots of the pending offer.
    offered: Option<SlotPool>,
    /// Which lines send.
    tracks: Vec<OfferedTrack>,
    candidates: String,
    /// Candidates that came before the SDP they belong to.
    early: Vec<String>,
    /// STUN and DTLS datagrams that came.
    handshake: u64,
}

impl Peer {
    /// One that begins at `now`.
    pub(super) fn new(
        common: &Arc<Common>,
        spec: BotSpec,
        says: Says,
        now: Instant,
        shared: Option<SocketAddrV4>,
    ) -> Self {
        let tone = says.tone.clone();
        let media = media(common, &spec, says, now);
        let mut peer = Self {
            port: Port::Closed,
            armed: None,
            wanted: spec.slots,
            waiters: Vec::new(),
            connect_timeout: common.connect_timeout,
            local: SocketAddr::from((common.local_ip, 0)),
            ice: None,
            ice_at: None,
            media,
            state: State::Joining(None),
            remote: None,
            negotiated: false,
            pool: SlotPool { audio: 0, video: 0 },
            offered: None,
            tracks: Vec::new(),
            candidates: String::new(),
            early: Vec::new(),
            handshake: 0,
            common: common.clone(),
            spec,
            tone,
            on_air: false,
            heard: MixWindows::default(),
        };
        if let Err(why) = peer.open(now, shared) {
            peer.fail(why);
        }
        peer
    }

    fn open(&mut self, now: Instant, shared: Option<SocketAddrV4>) -> Result<(), String> {
        let video = match self.spec.video_codec {
            VideoCodec::Vp8 => VideoFormat::Vp8,
            VideoCodec::H264 => VideoFormat::H264,
            VideoCodec::Vp9 => VideoFormat::Vp9,
            VideoCodec::Av1 => VideoFormat::Av1,
        };
        let shared_transport = &self.common.transport.clone().lacking(self.spec.lacks.transport);
        let ice = match self.spec.protocol {
            // Its connection begins with the answer.
            Protocol::Tcp => IceDtls::client_on_tcp(shared_transport, Some(video), now),
            Protocol::Udp => {
                (self.port, self.local) =
                    Port::open(self.local, shared).map_err(|e| e.to_string())?;
                IceDtls::client(shared_transport, Some(video), self.local, now)
            }
        };
        self.ice = Some(ice.map_err(|e| e.to_string())?);
        Ok(())
    }

    /// Ends the bot with a cause that every later question is answered with.
    pub(super) fn fail(&mut self, why: String) {
        if !self.closed() {
            self.state = State::Failed(why);
        }
    }

    pub(super) fn closed(&self) -> bool {
        matches!(self.state, State::Failed(_) | State::Left)
    }

    fn alive(&self) -> Result<(), BotError> {
        match &self.state {
            State::Failed(why) => Err(BotError::new(why.clone())),
            State::Left => Err(BotError::new("the bot has left")),
            State::Joining(_) | State::Connected => Ok(()),
        }
    }

    pub(super) fn offer(&mut self) -> Result<BotOffer, BotError> {
        self.alive()?;
        let slot = |kind| OfferLine { kind, send: false, layers: &[] };
        if let Some(link) = &self.spec.link {
            let kinds: Vec<Kind> = link.kinds.iter().map(|kind| rtp_kind(*kind)).collect();
            let ice = self.ice.as_mut().ok_or_else(|| BotError::new(NO_TRANSPORT))?;
            let received = kinds.iter().map(|kind| slot(*kind)).collect::<Vec<_>>();
            let offer = match link.receives_only {
                true => ice.offer(&received, false),
                false => ice.offer_both_ways(&kinds),
            };
            let offer = offer.map_err(|e| BotError::new(e.to_string()))?;
            self.ice_at = None;
            let lines = kinds.iter().copied().zip(offer.mids);
            self.tracks = self.own_tracks(lines);
            return Ok(BotOffer { sdp: offer.sdp, tracks: self.tracks.clone() });
        }
        let mut lines = if self.negotiated { Vec::new() } else { own_lines(self.spec.media) };
        let own = lines.len();
        let more = |wanted: u32, have: u32| wanted.saturating_sub(have) as usize;
        let both_ways = self.spec.one_line && own > 0;
        if !both_ways {
            let audio = more(self.wanted.audio, self.pool.audio);
            let video = more(self.wanted.video, self.pool.video);
            lines.extend(std::iter::repeat_n(slot(Kind::Audio), audio));
            lines.extend(std::iter::repeat_n(slot(Kind::Video), video));
        }
        let ice = self.ice.as_mut().ok_or_else(|| BotError::new(NO_TRANSPORT))?;
        let offer = match both_ways {
            true => ice.offer_both_ways(&[Kind::Audio]),
            false => ice.offer(&lines, false),
        };
        let offer = offer.map_err(|error| BotError::new(error.to_string()))?;
        if own > 0 {
            let (common, media) = (&self.common, self.spec.media);
            let lines = lines[..own].iter().map(|line| line.kind).zip(offer.mids);
            let track = |(kind, mid)| with_layers(offered(media, kind, mid), common, media);
            self.tracks = lines.map(track).collect();
        }
        self.offered = Some(SlotPool {
            audio: self.wanted.audio.max(self.pool.audio),
            video: self.wanted.video.max(self.pool.video),
        });
        self.ice_at = None;
        Ok(BotOffer { sdp: offer.sdp, tracks: self.tracks.clone() })
    }

    pub(super) fn answer(&mut self, answer: &Answer) -> Result<(), BotError> {
        self.alive()?;
        let now = Instant::now();
        let ice = self.ice.as_mut().ok_or_else(|| BotError::new(NO_TRANSPORT))?;
        let negotiated =
            ice.accept_answer(&answer.sdp).map_err(|error| BotError::new(error.to_string()))?;
        self.pool = self.offered.take().unwrap_or(self.pool);
        if self.spec.protocol == Protocol::Tcp && matches!(self.port, Port::Closed) {
            self.connect_by_tcp(&answer.sdp)?;
        }
        self.agreed(&negotiated, answer, now);
        Ok(())
    }

    /// Connects to where the answer says that TCP is taken.
    fn connect_by_tcp(&mut self, answer: &str) -> Result<(), BotError> {
        let to = passive_candidate(answer)
            .ok_or_else(|| BotError::new("the answer has no passive TCP candidate"))?;
        let (stream, local) = Stream::connect(to).map_err(|e| BotError::new(e.to_string()))?;
        (self.port, self.local) = (Port::Stream(stream), local);
        let ice = self.ice.as_mut().ok_or_else(|| BotError::new(NO_TRANSPORT))?;
        ice.connects_from(local).map_err(|error| BotError::new(error.to_string()))
    }

    /// Takes the offer of another member of a mesh, and answers.
    pub(super) fn accept(&mut self, offer: &Answer) -> Result<BotOffer, BotError> {
        self.alive()?;
        let now = Instant::now();
        let ice = self.ice.as_mut().ok_or_else(|| BotError::new(NO_TRANSPORT))?;
        let (sdp, negotiated) =
            ice.accept_offer(&offer.sdp).map_err(|error| BotError::new(error.to_string()))?;
        let sending = negotiated.lines.iter();
        let sending = sending.filter(|line| line.direction != Direction::Receive);
        let lines: Vec<_> = sending.map(|line| (line.codec.kind(), line.mid.clone())).collect();
        self.tracks = self.own_tracks(lines.into_iter());
        self.agreed(&negotiated, offer, now);
        Ok(BotOffer { sdp, tracks: self.tracks.clone() })
    }

    /// Own tracks of a mesh by line: the first of each kind carries it.
    fn own_tracks(&self, lines: impl Iterator<Item = (Kind, String)>) -> Vec<OfferedTrack> {
        let own = self.spec.link.iter().flat_map(|link| &link.own);
        let mut own: Vec<Kind> = own.map(|(kind, _)| rtp_kind(*kind)).collect();
        lines
            .filter_map(|(kind, mid)| {
                let at = own.iter().position(|other| *other == kind)?;
                own.remove(at);
                Some(offered(self.spec.media, kind, mid))
            })
            .collect()
    }

    /// Both sides agree: media knows its lines from now on. `theirs` is the other side's SDP with
    /// the ids of the own tracks, or in a mesh with those of the member.
    fn agreed(&mut self, negotiated: &Negotiated, theirs: &Answer, now: Instant) {
        // Not none: who waits for the other side to begin has ICE begin by a timeout.
        self.ice_at = Some(now);
        self.negotiated = true;
        let named = theirs.tracks.iter().map(|track| (track.mid.clone(), track.id.clone()));
        match &self.spec.link {
            None => self.media.agreed(negotiated, &named.collect::<Vec<_>>(), now),
            Some(link) => {
                let id = |kind| link.own.iter().find(|(own, _)| *own == kind);
                let own = self.tracks.iter();
                let own = own.filter_map(|t| Some((t.mid.clone(), id(t.kind)?.1.clone())));
                self.media.agreed(negotiated, &own.collect::<Vec<_>>(), now);
                let changes = named.map(|(slot, track)| SlotChange {
                    slot,
                    participant: Some(link.other.clone()),
                    track: Some(track),
                    mix: false,
                    paused: None,
                    rtp_timestamp: None,
                });
                self.media.map_slots(&changes.collect::<Vec<_>>(), now);
            }
        }
        if let State::Joining(since @ None) = &mut self.state {
            *since = Some(now);
            self.candidates = candidates(&theirs.sdp);
        }
        for candidate in std::mem::take(&mut self.early) {
            self.candidate(candidate);
        }
    }

    /// A candidate of the other member of a mesh.
    pub(super) fn candidate(&mut self, candidate: String) {
        if candidate.is_empty() {
            return; // there are no more
        }
        if !self.negotiated {
            if self.early.len() < MAX_CANDIDATES {
                self.early.push(candidate);
            }
            return;
        }
        // One that cannot be used (a name of mDNS, TCP) is no fault while there are others.
        if let Some(Ok(address)) = self.ice.as_mut().map(|ice| ice.add_candidate(&candidate)) {
            self.ice_at = None;
            let between = if self.candidates.is_empty() { "" } else { ", " };
            self.candidates.push_str(&format!("{between}{address}"));
        }
    }

    pub(super) fn pause(&mut self, track: &str, paused: bool) {
        self.media.pause(track, paused);
    }

    pub(super) fn layers(&mut self, track: &str, layer: u8) {
        self.media.layers(track, layer);
    }

    pub(super) fn downlink(&mut self, estimate_kbps: Option<u32>) {
        self.media.downlink(estimate_kbps);
    }

    pub(super) fn slots(&mut self, changes: &[SlotChange]) {
        self.media.map_slots(changes, Instant::now());
    }

    pub(super) fn command(&mut self, command: BotCommand) {
        match command {
            BotCommand::StopVideo => self.media.stop(Kind::Video),
            BotCommand::StopAudio => self.media.stop(Kind::Audio),
            BotCommand::Leave => self.media.leave(),
        }
        if command == BotCommand::Leave && matches!(self.state, State::Joining(_)) {
            self.state = State::Left;
        }
    }

    /// Judges what it heard of the mix.
    pub(super) fn heard(&mut self) -> Result<MixWindows, BotError> {
        self.alive()?;
        if let Some(tone) = &self.tone {
            let (role, windows) = (tone.role, self.media.take_windows());
            self.common.on_air(role.plan, |air| {
                for window in &windows {
                    judge(&mut self.heard, &role.plan, role.place, window, air);
                }
            });
        }
        Ok(std::mem::take(&mut self.heard))
    }

    /// Tells the others of the room when this one begins and ends to say its tone.
    fn tell_on_air(&mut self, now: Instant) {
        let Some(tone) = &self.tone else { return };
        let speaks = self.media.speaks() && !self.closed();
        if speaks == self.on_air {
            return;
        }
        self.on_air = speaks;
        let (place, at) = (tone.role.place, tone.at(now));
        self.common.on_air(tone.role.plan, |air| match speaks {
            true => air.begin(place, &self.spec.name, at),
            false => air.end(place, at),
        });
    }

    pub(super) fn sample(&mut self) -> Result<QualitySample, BotError> {
        self.alive()?;
        let mut sample = self.media.sample(Instant::now());
        if self.common.fault == Some(Fault::FreezeCounter) {
            let counted = sample.received.iter_mut().filter_map(|row| row.freezes.as_mut());
            counted.for_each(|count| *count = 0);
        }
        Ok(sample)
    }

    pub(super) fn add_health(&self, health: &mut Health) {
        let counters = self.media.counters();
        counters.drops.iter().for_each(|(reason, count)| health.drop(reason, *count));
        health.drop("seal_error", counters.seal_errors);
        health.drop("receive_buffer_full", self.port.kernel_drops());
    }

    /// Takes what has arrived by its connection.
    fn receive_stream(&mut self, work: &mut Work) {
        let Port::Stream(stream) = &mut self.port else { return };
        let from = stream.peer();
        let Some(mut decoder) = stream.lend() else { return };
        for _ in 0..Stream::READS {
            let Port::Stream(stream) = &mut self.port else { return };
            if !stream.read(&mut decoder) {
                break;
            }
            let now = Instant::now();
            loop {
                match decoder.next_frame() {
                    Ok(Some(packet)) => {
                        self.take_packet((from, now), packet, now, &mut work.health);
                    }
                    Ok(None) => break,
                    Err(error) => return self.fail(format!("its TCP connection: {error}")),
                }
            }
        }
        if let Port::Stream(stream) = &mut self.port {
            stream.give_back(decoder);
        }
    }

    /// Takes what has arrived at a socket of its own; false where that was nothing.
    pub(super) fn receive(&mut self, batch: &mut RecvBatch, work: &mut Work) -> bool {
        if matches!(self.port, Port::Stream(_)) {
            self.receive_stream(work);
            return false;
        }
        let Port::Own(socket) = &self.port else { return false };
        match socket.recv(batch) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return false,
            Err(_) => {
                // An ICMP error of a datagram that was sent: the next call takes what arrived.
                work.health.drop("receive_error", 1);
                return true;
            }
        }
        let now = Instant::now();
        for datagram in batch.datagrams() {
            self.take(&datagram, now, &mut work.health);
        }
        true
    }

    /// In so many steps what comes next is read ahead, each where the one before pointed.
    pub(super) const WARM_STEPS: usize = BotMedia::WARM_STEPS;

    /// Reads a part of what a packet of sound needs that comes.
    pub(super) fn warm_to_receive(&self, step: usize) -> u64 {
        let own = if step == 0 { u64::from(self.ice.is_some()) } else { 0 };
        own + self.media.warm_to_receive(step)
    }

    /// Reads a part of what a packet of sound needs that goes.
    pub(super) fn warm_to_send(&self, step: usize) -> u64 {
        let own = if step == 0 { u64::from(self.ice_at.is_some()) } else { 0 };
        own + u64::from(self.armed.is_some()) + self.media.warm_to_send(step)
    }

    /// Takes one datagram; says whether [`Self::serve`] has something to do sooner than before.
    pub(super) fn take(
        &mut self,
        datagram: &Datagram<'_>,
        now: Instant,
        health: &mut Health,
    ) -> bool {
        self.take_packet((datagram.src.into(), datagram.arrival), datagram.data, now, health)
    }

    /// Takes one packet, from where it came and when.
    fn take_packet(
        &mut self,
        (from, arrival): (TransportAddress, Instant),
        data: &[u8],
        now: Instant,
        health: &mut Health,
    ) -> bool {
        health.received += 1;
        let (Some(first), Some(ice)) = (data.first(), &mut self.ice) else { return false };
        match rtp::header::classify(*first) {
            rtp::header::Kind::SrtpOrSrtcp => {
                // Counted by the media, by reason.
                let _ = self.media.handle_datagram(arrival, data);
                if !self.media.take_urgent() {
                    return false;
                }
                let due = self.media.next_deadline();
                due.is_some_and(|due| self.armed.is_none_or(|armed| due < armed))
            }
            rtp::header::Kind::Stun | rtp::header::Kind::Dtls => {
                self.handshake += 1;
                self.ice_at = None;
                match ice.handle_datagram(now, from, self.local, data) {
                    Ok(()) => {}
                    Err(TransportError::Failed(why)) => {
                        self.state = State::Failed(format!("ICE or DTLS failed: {why}"));
                    }
                    Err(_) => health.drop("not_stun_or_dtls", 1),
                }
                true
            }
            _ => {
                health.drop("not_of_a_session", 1);
                false
            }
        }
    }

    /// Does what is due; says when it wants to be called again.
    pub(super) fn serve(&mut self, work: &mut Work) -> Option<Instant> {
        let now = Instant::now();
        if !self.closed() && self.ice_at.is_none_or(|at| at <= now) {
            self.serve_ice(now, work);
        }
        if let (State::Connected, Some(remote)) = (&self.state, self.remote) {
            let port = &mut self.port;
            self.media.poll(now, &mut |datagram| work.push(port, remote, datagram));
            if self.media.left() {
                self.state = State::Left;
            }
        }
        work.flush_own(&mut self.port);
        if let Port::Stream(stream) = &self.port
            && let Some(error) = stream.broken()
        {
            let why = format!("its TCP connection to {} broke: {error}", self.candidates);
            self.fail(why);
        }
        if let State::Joining(Some(since)) = &self.state
            && *since + self.connect_timeout <= now
        {
            self.state = State::Failed(self.timeout_cause());
        }
        self.answer_waiters();
        self.tell_on_air(now);
        if self.closed() {
            return None;
        }
        let limit = match &self.state {
            State::Joining(Some(since)) => Some(*since + self.connect_timeout),
            _ => None,
        };
        let deadlines = [self.ice_at, self.media.next_deadline(), limit];
        deadlines.into_iter().flatten().min().map(|at| at.max(now + SHORTEST_WAIT))
    }

    fn serve_ice(&mut self, now: Instant, work: &mut Work) {
        let Some(ice) = &mut self.ice else { return };
        let failed = |error: TransportError| State::Failed(format!("ICE or DTLS: {error}"));
        if self.ice_at.take().is_some()
            && let Err(error) = ice.handle_timeout(now)
        {
            self.state = failed(error);
            return;
        }
        loop {
            match ice.poll() {
                Ok(Output::Transmit { destination, data, .. }) => {
                    work.push(&mut self.port, destination, &data);
                }
                Ok(Output::Event(Event::Connected { keys, remote, .. })) => {
                    self.remote = Some(remote);
                    self.media.install(&keys, now);
                    self.state = State::Connected;
                }
                Ok(Output::Event(Event::Remote(remote))) => self.remote = Some(remote),
                // ICE may recover; if it does not, nothing is received and the samples say so.
                Ok(Output::Event(Event::Disconnected | Event::Reconnected)) => {}
                Ok(Output::Wait(at)) => {
                    self.ice_at = Some(at);
                    return;
                }
                Err(error) => {
                    self.state = failed(error);
                    return;
                }
            }
        }
    }

    fn timeout_cause(&self) -> String {
        let seconds = self.connect_timeout.as_secs_f64();
        let (local, candidates) = (self.local, &self.candidates);
        match (self.handshake, candidates.is_empty()) {
            (_, true) => "the answer has no candidates to send to".into(),
            (0, _) => format!(
                "nothing came back from {candidates} to {local} within {seconds} s: is that UDP \
                 address reachable from here?"
            ),
            (count, _) => format!(
                "ICE or DTLS with {candidates} did not come to an end within {seconds} s, though \
                 {count} datagrams came back"
            ),
        }
    }

    fn answer_waiters(&mut self) {
        let result = match &self.state {
            State::Joining(_) => return,
            State::Connected => Ok(()),
            State::Failed(_) | State::Left => self.alive(),
        };
        for waiter in self.waiters.drain(..) {
            // Who asked may have left meanwhile.
            let _ = waiter.send(result.clone());
        }
    }
}

const NO_TRANSPORT: &str = "the bot has no transport";
