//! One bot at run time: its socket, its ICE and DTLS, its media.

use super::{Common, Health, Reply};
use crate::bot::media::{BotMedia, Clock, Config};
use crate::bots::{AudioSource, BotCommand, BotError, BotOffer, BotSpec, SlotPool, VideoSource};
use net::{RecvBatch, SendBatch, SocketOptions, UdpBatchSocket};
use rtp::negotiated::Kind;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use transport::{Event, IceDtls, OfferLine, Output, TransportError, VideoFormat};
use wire::QualitySample;
use wire::event::SlotChange;
use wire::room::{Answer, MediaKind, OfferedTrack, VideoCodec};

/// Socket buffers, in bytes: some hundred packets each way.
const SOCKET_BUFFER: usize = 1 << 20;
/// A bot is not served again sooner than this by a timer.
const SHORTEST_WAIT: Duration = Duration::from_micros(100);

/// What all bots of a thread work with.
pub(super) struct Work {
    pub(super) batch: SendBatch,
    pub(super) health: Health,
}

enum State {
    /// Not connected yet; since the answer, if it came.
    Joining(Option<Instant>),
    Connected,
    Failed(String),
    Left,
}

pub(super) struct Peer {
    pub(super) socket: Option<UdpBatchSocket>,
    pub(super) armed: Option<Instant>,
    pub(super) wanted: SlotPool,
    pub(super) waiters: Vec<Reply<()>>,
    spec: BotSpec,
    connect_timeout: Duration,
    local: SocketAddr,
    ice: Option<IceDtls>,
    /// When ICE and DTLS want to be called; None: now.
    ice_at: Option<Instant>,
    media: BotMedia,
    state: State,
    remote: Option<SocketAddr>,
    /// Whether an offer was accepted.
    negotiated: bool,
    /// Slots of the accepted offers.
    pool: SlotPool,
    /// Slots of the pending offer.
    offered: Option<SlotPool>,
    /// Which lines send.
    tracks: Vec<OfferedTrack>,
    candidates: String,
    /// STUN and DTLS datagrams that came.
    handshake: u64,
}

impl Peer {
    pub(super) fn new(common: &Common, spec: BotSpec, joined: Instant) -> Self {
        let voice = (spec.media.audio == AudioSource::Speech)
            .then(|| common.fixtures.voice(spec.index.wrapping_sub(1)));
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Instant::now();
        let media = BotMedia::new(Config {
            seed: common.seed.wrapping_mul(0x1_0000_0001) ^ u64::from(spec.index),
            cname: spec.name.clone(),
            voice,
            clip: common.fixtures.clip(spec.media.video),
            joined,
            clock: Clock { origin: now, unix },
        });
        let mut peer = Self {
            socket: None,
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
            handshake: 0,
            spec,
        };
        if let Err(why) = peer.open(common, now) {
            peer.fail(why);
        }
        peer
    }

    fn open(&mut self, common: &Common, now: Instant) -> Result<(), String> {
        let options = SocketOptions {
            recv_buffer: SOCKET_BUFFER,
            send_buffer: SOCKET_BUFFER,
            ..SocketOptions::default()
        };
        let socket = UdpBatchSocket::bind(self.local, options).map_err(|e| e.to_string())?;
        self.local = socket.local_addr().map_err(|e| e.to_string())?;
        let video = match self.spec.video_codec {
            VideoCodec::Vp8 => VideoFormat::Vp8,
            VideoCodec::H264 => VideoFormat::H264,
        };
        let ice = IceDtls::client(&common.transport, Some(video), self.local, now);
        self.ice = Some(ice.map_err(|e| e.to_string())?);
        self.socket = Some(socket);
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
        let mut lines = Vec::new();
        if !self.negotiated {
            if self.spec.media.audio != AudioSource::None {
                lines.push(OfferLine { kind: Kind::Audio, send: true });
            }
            if self.spec.media.video != VideoSource::None {
                lines.push(OfferLine { kind: Kind::Video, send: true });
            }
        }
        let own = lines.len();
        let more = |wanted: u32, have: u32| wanted.saturating_sub(have) as usize;
        let slot = |kind| OfferLine { kind, send: false };
        let audio = more(self.wanted.audio, self.pool.audio);
        let video = more(self.wanted.video, self.pool.video);
        lines.extend(std::iter::repeat_n(slot(Kind::Audio), audio));
        lines.extend(std::iter::repeat_n(slot(Kind::Video), video));
        let ice = self.ice.as_mut().ok_or_else(|| BotError::new("the bot has no transport"))?;
        let offer = ice.offer(&lines, false).map_err(|error| BotError::new(error.to_string()))?;
        if own > 0 {
            self.tracks = lines[..own]
                .iter()
                .zip(&offer.mids)
                .map(|(line, mid)| {
                    let (kind, name) = match line.kind {
                        Kind::Audio => (MediaKind::Audio, "microphone"),
                        Kind::Video => (MediaKind::Video, "camera"),
                    };
                    OfferedTrack { mid: mid.clone(), kind, name: name.into() }
                })
                .collect();
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
        let ice = self.ice.as_mut().ok_or_else(|| BotError::new("the bot has no transport"))?;
        let negotiated =
            ice.accept_answer(&answer.sdp).map_err(|error| BotError::new(error.to_string()))?;
        self.ice_at = None;
        self.negotiated = true;
        self.pool = self.offered.take().unwrap_or(self.pool);
        let tracks: Vec<_> =
            answer.tracks.iter().map(|track| (track.mid.clone(), track.id.clone())).collect();
        self.media.agreed(&negotiated, &tracks, now);
        if let State::Joining(since @ None) = &mut self.state {
            *since = Some(now);
            self.candidates = candidates(&answer.sdp);
        }
        Ok(())
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

    pub(super) fn sample(&mut self) -> Result<QualitySample, BotError> {
        self.alive()?;
        Ok(self.media.sample(Instant::now()))
    }

    pub(super) fn add_health(&self, health: &mut Health) {
        let counters = self.media.counters();
        counters.drops.iter().for_each(|(reason, count)| health.drop(reason, *count));
        health.drop("seal_error", counters.seal_errors);
        let kernel = self.socket.as_ref().and_then(|socket| socket.kernel_drops().ok());
        health.drop("receive_buffer_full", kernel.unwrap_or(0));
    }

    /// Takes what has arrived; false where that was nothing.
    pub(super) fn receive(&mut self, batch: &mut RecvBatch, work: &mut Work) -> bool {
        let (Some(socket), Some(ice)) = (&self.socket, &mut self.ice) else { return false };
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
            work.health.received += 1;
            let Some(first) = datagram.data.first() else { continue };
            match rtp::header::classify(*first) {
                rtp::header::Kind::SrtpOrSrtcp => {
                    // Counted by the media, by reason.
                    let _ = self.media.handle_datagram(datagram.arrival, datagram.data);
                }
                rtp::header::Kind::Stun | rtp::header::Kind::Dtls => {
                    self.handshake += 1;
                    self.ice_at = None;
                    match ice.handle_datagram(now, datagram.src, self.local, datagram.data) {
                        Ok(()) => {}
                        Err(TransportError::Failed(why)) => {
                            self.state = State::Failed(format!("ICE or DTLS failed: {why}"));
                        }
                        Err(_) => work.health.drop("not_stun_or_dtls", 1),
                    }
                }
                _ => work.health.drop("not_of_a_session", 1),
            }
        }
        true
    }

    /// Does what is due; says when it wants to be called again.
    pub(super) fn serve(&mut self, work: &mut Work) -> Option<Instant> {
        let now = Instant::now();
        if !self.closed() && self.ice_at.is_none_or(|at| at <= now) {
            self.serve_ice(now, work);
        }
        if let (State::Connected, Some(remote), Some(socket)) =
            (&self.state, self.remote, &self.socket)
        {
            self.media.poll(now, &mut |datagram| push(work, socket, remote, datagram));
            if self.media.left() {
                self.state = State::Left;
            }
        }
        if let Some(socket) = &self.socket {
            flush(work, socket);
        }
        if let State::Joining(Some(since)) = &self.state
            && *since + self.connect_timeout <= now
        {
            self.state = State::Failed(self.timeout_cause());
        }
        self.answer_waiters();
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
        let (Some(ice), Some(socket)) = (&mut self.ice, &self.socket) else { return };
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
                    push(work, socket, destination, &data);
                }
                Ok(Output::Event(Event::Connected { keys, remote })) => {
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

fn push(work: &mut Work, socket: &UdpBatchSocket, destination: SocketAddr, datagram: &[u8]) {
    if work.batch.is_full() {
        flush(work, socket);
    }
    if !work.batch.push(destination, datagram) {
        work.health.drop("datagram_too_long", 1);
    }
}

fn flush(work: &mut Work, socket: &UdpBatchSocket) {
    if work.batch.is_empty() {
        return;
    }
    let report = work.batch.flush(socket);
    work.health.sent += report.sent;
    work.health.drop("send_failed", report.failed);
    work.health.drop("send_buffer_full", report.send_buffer_full);
}

/// The addresses of an SDP's candidates, for people.
fn candidates(sdp: &str) -> String {
    let mut addresses: Vec<String> = Vec::new();
    for line in sdp.lines().filter_map(|line| line.strip_prefix("a=candidate:")) {
        let mut fields = line.split_ascii_whitespace().skip(4);
        if let (Some(ip), Some(port)) = (fields.next(), fields.next()) {
            let address = format!("{ip}:{port}");
            if !addresses.contains(&address) && addresses.len() < 4 {
                addresses.push(address);
            }
        }
    }
    addresses.join(", ")
}
