//! One peer: str0m as ICE agent, DTLS endpoint and SDP engine, nothing more.

use crate::lacks::Lacks;
use crate::life::{Life, Turn};
use crate::nominated::Nominations;
use crate::sdp::{self, MAX_SDP_BYTES, MAX_SDP_LINES};
use crate::tap::{self, KeySlot, KeysTaken};
use rtp::negotiated::{Kind, Negotiated};
use rtp::srtp::KeyPair;
use rtp::stun::{self, Responder};
use rtp::{Protocol, TransportAddress};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use str0m::change::{SdpAnswer, SdpOffer, SdpPendingOffer};
use str0m::config::DtlsCert;
use str0m::crypto::CryptoProvider;
use str0m::format::{Codec, FormatParams};
use str0m::media::{Direction as StrDirection, Frequency, MediaKind, Simulcast, SimulcastLayer};
use str0m::net::{Protocol as StrProtocol, Receive, TcpType};
use str0m::rtp::{Extension, ExtensionSerializer, ExtensionValues};
use str0m::{Candidate, Input, Rtc, RtcConfig};

/// Where `abs-capture-time` stands in offers of ours; str0m's own extensions are below.
const CAPTURE_TIME_ID: u8 = 14;
/// Where the dependency descriptor stands there.
const DEPENDENCY_ID: u8 = 12;

/// The video codec of a room, as SDP offers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VideoFormat {
    /// VP8 with RTX.
    Vp8,
    /// H.264 constrained baseline 3.1, packetization mode 1, with RTX.
    H264,
    /// VP9 profile 0 with RTX.
    Vp9,
    /// AV1 main profile with RTX, and its dependency descriptors.
    Av1,
}

/// A header extension that the library only agrees on: it reads and writes no media here.
#[derive(Debug)]
struct AgreedForVideo;

impl ExtensionSerializer for AgreedForVideo {
    fn write_to(&self, _: &mut [u8], _: &ExtensionValues) -> usize {
        0
    }

    fn parse_value(&self, _: &[u8], _: &mut ExtensionValues) -> bool {
        false
    }

    fn is_video(&self) -> bool {
        true
    }

    fn is_audio(&self) -> bool {
        false
    }
}

/// What all transports of a process share: the crypto provider and the certificate.
#[derive(Debug, Clone)]
pub struct Shared {
    provider: Arc<CryptoProvider>,
    certificate: DtlsCert,
    lacks: Lacks,
}

/// What can go wrong with a transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportError {
    /// The SDP is too long: bytes or m-lines, and the bound.
    SdpTooLarge(String),
    /// The SDP could not be parsed or negotiated, with the reason.
    Sdp(String),
    /// An answer came without an offer of ours.
    NoOfferPending,
    /// A datagram was neither STUN nor DTLS, or broke the protocol.
    Datagram(String),
    /// DTLS or ICE ended for good.
    Failed(String),
    /// The library panicked: this transport must be dropped, no other is harmed.
    Panicked,
}

impl std::fmt::Display for TransportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SdpTooLarge(what) => write!(f, "the SDP is too large: {what}"),
            Self::Sdp(why) => write!(f, "the SDP was not understood: {why}"),
            Self::NoOfferPending => f.write_str("an answer came, but no offer is pending"),
            Self::Datagram(why) => write!(f, "not a STUN or DTLS datagram of this session: {why}"),
            Self::Failed(why) => write!(f, "the transport failed: {why}"),
            Self::Panicked => f.write_str("the ICE and DTLS library gave up on this transport"),
        }
    }
}

impl std::error::Error for TransportError {}

impl Shared {
    /// Makes the certificate. Errors: the crypto library cannot.
    pub fn new() -> Result<Self, TransportError> {
        let provider = tap::provider();
        let certificate = provider
            .dtls_provider
            .generate_certificate()
            .ok_or_else(|| TransportError::Failed("no certificate could be made".into()))?;
        Ok(Self { provider, certificate, lacks: Lacks::default() })
    }

    /// Transports that neither offer nor accept redundancy of sound (RED, RFC 2198).
    #[must_use]
    pub fn without_red(self) -> Self {
        self.lacking(Lacks { red: true, ..Lacks::default() })
    }

    /// Transports that neither offer nor accept what is named, besides what they lack already.
    #[must_use]
    pub fn lacking(self, lacks: Lacks) -> Self {
        Self { lacks: self.lacks.and(lacks), ..self }
    }

    fn config(&self, video: Option<VideoFormat>) -> RtcConfig {
        let day = Duration::from_secs(86_400);
        let mut config = RtcConfig::new()
            .set_crypto_provider(self.provider.clone())
            .set_dtls_cert(self.certificate.clone())
            .clear_codecs()
            // With RED sound repeats itself where packets are lost.
            .enable_opus(true, !self.lacks.red)
            .set_extension(CAPTURE_TIME_ID, Extension::AbsoluteCaptureTime)
            // Reports that could never leave would be built for each stream otherwise.
            .set_rtcp_report_interval_audio(day)
            .set_rtcp_report_interval_video(day)
            .set_stats_interval(None);
        let resend = |payload_type: u8| (!self.lacks.rtx).then(|| payload_type.into());
        let rate = Frequency::NINETY_KHZ;
        let codecs = config.codec_config();
        match video {
            Some(VideoFormat::Vp8) => {
                let plain = FormatParams::default();
                codecs.add_config(96.into(), resend(97), Codec::Vp8, rate, None, plain);
            }
            Some(VideoFormat::H264) => {
                codecs.add_h264(108.into(), resend(109), true, 0x42e01f);
            }
            Some(VideoFormat::Vp9) => {
                let profile = FormatParams { profile_id: Some(0), ..FormatParams::default() };
                codecs.add_config(98.into(), resend(99), Codec::Vp9, rate, None, profile);
            }
            Some(VideoFormat::Av1) => {
                let dependency = Extension::with_serializer(rtp::dependency::URI, AgreedForVideo);
                config = config.enable_av1(true).set_extension(DEPENDENCY_ID, dependency);
            }
            None => {}
        }
        config
    }
}

/// Simulcast with these layers, if there are any.
fn simulcast(layers: &[&str]) -> Option<Simulcast> {
    let mut simulcast = Simulcast::new();
    layers.iter().for_each(|rid| simulcast.add_send_layer(SimulcastLayer::new(rid)));
    (!layers.is_empty()).then_some(simulcast)
}

/// A line that a client offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfferLine {
    /// Audio or video.
    pub kind: Kind,
    /// Whether the client sends on it; else it is a slot.
    pub send: bool,
    /// The RTP stream ids of the layers that it is sent in (simulcast), the smallest picture first.
    pub layers: &'static [&'static str],
}

/// A client's offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The SDP.
    pub sdp: String,
    /// The mids of the lines that were added, in the order asked for.
    pub mids: Vec<String>,
}

/// What a transport wants done next.
#[derive(Debug)]
pub enum Output {
    /// Send this datagram.
    Transmit {
        /// The own address that it leaves from.
        source: SocketAddr,
        /// Where it goes.
        destination: TransportAddress,
        /// Its bytes: STUN or DTLS.
        data: Vec<u8>,
    },
    /// Something happened.
    Event(Event),
    /// Nothing until then.
    Wait(Instant),
}

/// What happened to a transport.
#[derive(Debug, Clone)]
pub enum Event {
    /// ICE and DTLS are up: the keys for media and where it goes.
    Connected {
        /// SRTP keys, seen from this side.
        keys: KeyPair,
        /// The other side's address.
        remote: TransportAddress,
    },
    /// The other side moved to another address.
    Remote(TransportAddress),
    /// No nominated pair is alive: no sign of life came on it for 15 s, or nobody followed an ICE restart for as long.
    /// Nothing may be sent from now on. ICE may recover by itself or by a restart.
    Disconnected,
    /// After [`Event::Disconnected`] a pair is nominated again.
    Reconnected,
}

impl From<Turn> for Event {
    fn from(turn: Turn) -> Self {
        match turn {
            Turn::Gone => Self::Disconnected,
            Turn::Back => Self::Reconnected,
        }
    }
}

/// One ICE/DTLS transport, driven from outside.
pub struct IceDtls {
    rtc: Rtc,
    keys: KeySlot,
    taken: Option<KeysTaken>,
    client: bool,
    /// The time that was told last.
    now: Instant,
    nominations: Nominations,
    last_dtls_destination: Option<TransportAddress>,
    announced: Option<TransportAddress>,
    connected: bool,
    life: Life,
    /// What [`Life`] found when the clock was told last.
    found: Option<Turn>,
    pending: Option<(SdpPendingOffer, String)>,
    media_leaks: u64,
    lacks: Lacks,
    /// The library panicked: what it holds may be half changed, and is not touched again.
    panicked: bool,
}

impl std::fmt::Debug for IceDtls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IceDtls(client: {}, connected: {})", self.client, self.connected)
    }
}

impl IceDtls {
    /// The server's side: ICE-lite, answers. `candidates` are the addresses media is reached at; those on TCP
    /// are passive (RFC 6544 §4.5).
    pub fn server(
        shared: &Shared,
        video: Option<VideoFormat>,
        candidates: &[impl Into<TransportAddress> + Copy],
        now: Instant,
    ) -> Result<Self, TransportError> {
        let mut server = Self::build(shared, shared.config(video).set_ice_lite(true), false, now)?;
        for address in candidates {
            server.add_local((*address).into(), TcpType::Passive)?;
        }
        Ok(server)
    }

    /// A client's side, or one of the two equals of a mesh: full ICE; offers, and between equals
    /// answers too.
    pub fn client(
        shared: &Shared,
        video: Option<VideoFormat>,
        local: SocketAddr,
        now: Instant,
    ) -> Result<Self, TransportError> {
        let mut client = Self::build(shared, shared.config(video), true, now)?;
        client.add_local(local.into(), TcpType::Active)?;
        Ok(client)
    }

    /// A client's side that connects by TCP: its address is known once the answer has come and the connection
    /// is under way, see [`IceDtls::connects_from`].
    pub fn client_on_tcp(
        shared: &Shared,
        video: Option<VideoFormat>,
        now: Instant,
    ) -> Result<Self, TransportError> {
        Self::build(shared, shared.config(video), true, now)
    }

    /// A client connects by TCP from here to a passive candidate of the other side (RFC 6544).
    pub fn connects_from(&mut self, local: SocketAddr) -> Result<(), TransportError> {
        self.add_local(TransportAddress::tcp(local), TcpType::Active)
    }

    fn build(
        shared: &Shared,
        config: RtcConfig,
        client: bool,
        now: Instant,
    ) -> Result<Self, TransportError> {
        let rtc = config.build(now);
        let keys = tap::take_last_slot()
            .ok_or_else(|| TransportError::Failed("the key tap was not asked".into()))?;
        Ok(Self {
            rtc,
            keys,
            taken: None,
            client,
            now,
            nominations: Nominations::default(),
            last_dtls_destination: None,
            announced: None,
            connected: false,
            life: Life::default(),
            found: None,
            pending: None,
            media_leaks: 0,
            lacks: shared.lacks,
            panicked: false,
        })
    }

    fn add_local(&mut self, address: TransportAddress, tcp: TcpType) -> Result<(), TransportError> {
        let candidate = match address.protocol {
            Protocol::Udp => Candidate::builder().udp().host(address.socket).build(),
            Protocol::Tcp => Candidate::builder().tcp().host(address.socket).tcptype(tcp).build(),
        };
        let candidate = candidate.map_err(|error| {
            TransportError::Failed(format!("{address} is no candidate: {error}"))
        })?;
        self.rtc.add_local_candidate(candidate);
        Ok(())
    }

    /// Takes an offer, returns the answer and what was agreed.
    ///
    /// Errors: too large, unparsable or not negotiable; the transport stays as it was where the
    /// library allows it.
    pub fn accept_offer(&mut self, offer: &str) -> Result<(String, Negotiated), TransportError> {
        check_size(offer)?;
        // Where two offers cross in a mesh, the own one is taken back.
        self.pending = None;
        // Of the parser alone, a panic harms nothing.
        let parsed = catch_unwind(|| SdpOffer::from_sdp_string(offer))
            .map_err(|_| TransportError::Sdp("the parser gave up on it".into()))?
            .map_err(|error| TransportError::Sdp(error.to_string()))?;
        let (before, answer) = self.guarded(|rtc| {
            let before = rtc.direct_api().local_ice_credentials().ufrag;
            (before, rtc.sdp_api().accept_offer(parsed))
        })?;
        self.note_restart(&before);
        let answer = answer.map_err(|error| TransportError::Sdp(error.to_string()))?;
        let answer = sdp::as_preferred(offer, answer.to_sdp_string());
        let answer = sdp::with_reduced_size(&answer, Some(offer));
        let answer = sdp::without_feedback_on_published_sound(&answer);
        let answer = sdp::lacking(answer, self.lacks);
        let negotiated = sdp::negotiated(offer, &answer, true);
        Ok((answer, negotiated))
    }

    /// Calls the library where the network reaches it. Errors: it panics, or has panicked before.
    fn guarded<T>(&mut self, call: impl FnOnce(&mut Rtc) -> T) -> Result<T, TransportError> {
        if self.panicked {
            return Err(TransportError::Panicked);
        }
        let called = catch_unwind(AssertUnwindSafe(|| call(&mut self.rtc)));
        self.panicked = called.is_err();
        called.map_err(|_| TransportError::Panicked)
    }

    /// Makes an offer that adds `lines`; with `restart` it also restarts ICE. Errors: nothing to
    /// offer.
    pub fn offer(&mut self, lines: &[OfferLine], restart: bool) -> Result<Offer, TransportError> {
        let lines = lines.iter().map(|line| {
            let direction = if line.send { StrDirection::SendOnly } else { StrDirection::RecvOnly };
            (line.kind, direction, line.layers)
        });
        self.offer_lines(lines, restart)
    }

    /// Makes an offer to an equal: a line for each kind, both ways. Errors: as
    /// [`IceDtls::offer`].
    pub fn offer_both_ways(&mut self, kinds: &[Kind]) -> Result<Offer, TransportError> {
        self.offer_lines(kinds.iter().map(|kind| (*kind, StrDirection::SendRecv, &[][..])), false)
    }

    fn offer_lines(
        &mut self,
        lines: impl Iterator<Item = (Kind, StrDirection, &'static [&'static str])>,
        restart: bool,
    ) -> Result<Offer, TransportError> {
        let mut api = self.rtc.sdp_api();
        let mids = lines
            .map(|(kind, direction, layers)| {
                let kind = match kind {
                    Kind::Audio => MediaKind::Audio,
                    Kind::Video => MediaKind::Video,
                };
                api.add_media(kind, direction, None, None, simulcast(layers)).to_string()
            })
            .collect();
        if restart {
            api.ice_restart(true);
        }
        let (offer, pending) =
            api.apply().ok_or_else(|| TransportError::Sdp("nothing to offer".into()))?;
        let sdp = sdp::codecs_first(&offer.to_sdp_string());
        let sdp = sdp::lacking(sdp::with_reduced_size(&sdp, None), self.lacks);
        self.pending = Some((pending, sdp.clone()));
        Ok(Offer { sdp, mids })
    }

    /// Takes the answer to the last [`IceDtls::offer`], returns what was agreed.
    pub fn accept_answer(&mut self, answer: &str) -> Result<Negotiated, TransportError> {
        check_size(answer)?;
        let (pending, offer) = self.pending.take().ok_or(TransportError::NoOfferPending)?;
        let parsed = SdpAnswer::from_sdp_string(answer)
            .map_err(|error| TransportError::Sdp(error.to_string()))?;
        let before = self.local_ufrag();
        self.rtc
            .sdp_api()
            .accept_answer(pending, parsed)
            .map_err(|error| TransportError::Sdp(error.to_string()))?;
        self.note_restart(&before);
        Ok(sdp::negotiated(&offer, answer, false))
    }

    /// Credentials other than before are those of an ICE restart.
    fn note_restart(&mut self, before: &str) {
        if self.local_ufrag() != before {
            self.life.restarts();
        }
    }

    /// Takes a candidate of the other side that came by itself (trickle ICE, RFC 8838), in the words
    /// of `RTCIceCandidate.candidate`; to be called once the other side's SDP is known.
    ///
    /// Errors: it is no candidate of UDP with an address, such as one hidden behind a name (mDNS).
    pub fn add_candidate(&mut self, candidate: &str) -> Result<SocketAddr, TransportError> {
        let parsed = Candidate::from_sdp_string(candidate.trim())
            .map_err(|error| TransportError::Sdp(error.to_string()))?;
        if parsed.proto() != StrProtocol::Udp {
            return Err(TransportError::Sdp(format!("{candidate}: only UDP is used here")));
        }
        let address = parsed.addr();
        self.rtc.add_remote_candidate(parsed);
        Ok(address)
    }

    /// The own ICE user fragment: whose STUN requests begin with it belong here (RFC 8445 §7.3).
    pub fn local_ufrag(&mut self) -> String {
        self.rtc.direct_api().local_ice_credentials().ufrag
    }

    /// Tells which checks are authentic: those signed with this side's credentials of now.
    pub fn credentials(&mut self) -> Responder {
        let own = self.rtc.direct_api().local_ice_credentials();
        Responder::new(&own.ufrag, &own.pass)
    }

    /// Answers checks in this side's name. None until a pair is nominated with the credentials of now: a
    /// nomination is the agent's to see.
    pub fn responder(&mut self) -> Option<Responder> {
        let own = self.credentials();
        (self.nominations.receiver() == Some(own.local_ufrag())).then_some(own)
    }

    /// A STUN or DTLS datagram came in, to the own address `destination`.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        source: impl Into<TransportAddress>,
        destination: SocketAddr,
        data: &[u8],
    ) -> Result<(), TransportError> {
        let source = source.into();
        self.now = now;
        // A request counts if it was signed for this side; an answer must know the transaction, which is random.
        if is_stun(data) && (!stun::is_request(data) || self.credentials().authenticates(data)) {
            self.nominations.observe(now, data, source, true);
        }
        let protocol = match source.protocol {
            Protocol::Udp => StrProtocol::Udp,
            Protocol::Tcp => StrProtocol::Tcp,
        };
        // Its parser runs before the transport is touched, so that a panic in it harms nothing.
        let receive = catch_unwind(|| Receive::new(protocol, source.socket, destination, data))
            .map_err(|_| TransportError::Datagram("the parser gave up on it".into()))?
            .map_err(|error| TransportError::Datagram(error.to_string()))?;
        self.guarded(|rtc| rtc.handle_input(Input::Receive(now, receive)))?
            .map_err(|error| TransportError::Failed(error.to_string()))
    }

    /// The time of the last [`Output::Wait`] has come. Errors: as [`IceDtls::handle_datagram`].
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), TransportError> {
        self.now = now;
        self.found = self.life.at(now).or(self.found);
        self.guarded(|rtc| rtc.handle_input(Input::Timeout(now)))?
            .map_err(|error| TransportError::Failed(error.to_string()))
    }

    /// What to do next; to be called until [`Output::Wait`].
    pub fn poll(&mut self) -> Result<Output, TransportError> {
        loop {
            if let Some(event) = self.due_event() {
                return Ok(Output::Event(event));
            }
            let output = self
                .guarded(Rtc::poll_output)?
                .map_err(|error| TransportError::Failed(error.to_string()))?;
            match output {
                str0m::Output::Timeout(at) => match self.due_event() {
                    Some(event) => return Ok(Output::Event(event)),
                    None => return Ok(Output::Wait(at)),
                },
                str0m::Output::Transmit(transmit) => {
                    let data: Vec<u8> = transmit.contents.into();
                    let destination = match transmit.proto {
                        StrProtocol::Udp => transmit.destination.into(),
                        _ => TransportAddress::tcp(transmit.destination),
                    };
                    match data.first() {
                        Some(128..=191) => {
                            // Cannot be: str0m owns no keys. Counted, never sent.
                            self.media_leaks += 1;
                            continue;
                        }
                        Some(20..=63) => self.last_dtls_destination = Some(destination),
                        _ => {
                            self.nominations.observe(self.now, &data, destination, false);
                        }
                    }
                    return Ok(Output::Transmit { source: transmit.source, destination, data });
                }
                str0m::Output::Event(event) => {
                    if let Some(event) = self.translate(event) {
                        return Ok(Output::Event(event));
                    }
                }
            }
        }
    }

    /// `Connected` once keys and address are there, later a change of the address, and that a restart came to nothing.
    fn due_event(&mut self) -> Option<Event> {
        if let Some(turn) = self.found.take() {
            return Some(turn.into());
        }
        let remote = self.nominations.current().or(self.last_dtls_destination)?;
        if !self.connected {
            let taken = self.taken.as_ref()?;
            let keys = KeyPair::from_exporter(taken.profile, &taken.exported, taken.client).ok()?;
            self.connected = true;
            self.announced = Some(remote);
            return Some(Event::Connected { keys, remote });
        }
        if self.announced != Some(remote) {
            self.announced = Some(remote);
            return Some(Event::Remote(remote));
        }
        None
    }

    fn translate(&mut self, event: str0m::Event) -> Option<Event> {
        match event {
            str0m::Event::Connected => {
                // DTLS is up and the certificate's fingerprint has been checked: only now the keys
                // may be used.
                self.taken = self.keys.lock().ok().and_then(|mut slot| slot.take());
                None
            }
            str0m::Event::IceConnectionStateChange(state) => {
                self.life.changed(state).map(Event::from)
            }
            _ => None,
        }
    }

    /// How many datagrams str0m wanted to send that looked like media: must stay 0.
    pub fn media_leaks(&self) -> u64 {
        self.media_leaks
    }
}

fn is_stun(data: &[u8]) -> bool {
    matches!(data.first(), Some(0..=3))
}

fn check_size(sdp: &str) -> Result<(), TransportError> {
    if sdp.len() > MAX_SDP_BYTES {
        let what = format!("{} bytes, at most {MAX_SDP_BYTES}", sdp.len());
        return Err(TransportError::SdpTooLarge(what));
    }
    let lines = sdp::line_count(sdp);
    if lines > MAX_SDP_LINES {
        let what = format!("{lines} m-lines, at most {MAX_SDP_LINES}");
        return Err(TransportError::SdpTooLarge(what));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
