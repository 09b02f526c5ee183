//! One peer: str0m as ICE agent, DTLS endpoint and SDP engine, nothing more.

use crate::error::TransportError;
use crate::handshake::Handshake;
use crate::lacks::Lacks;
use crate::life::{Life, Turn};
use crate::nominated::Nominations;
use crate::offer::{self, Agreed, words};
use crate::sdp::{self, MAX_SDP_BYTES, MAX_SDP_LINES};
use crate::shared::{Shared, VideoFormat};
use crate::tap::{self, KeySlot, KeysTaken};
use rtp::challenge::{Challenger, PEER_REFLEXIVE, Secret};
use rtp::negotiated::{Kind, Negotiated};
use rtp::srtp::KeyPair;
use rtp::stun::{self, Check, Responder, Role};
use rtp::{Protocol, TransportAddress};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::media::{Direction as StrDirection, MediaKind, Simulcast, SimulcastLayer};
use str0m::net::{Protocol as StrProtocol, Receive, TcpType};
use str0m::{Candidate, Input, Rtc, RtcConfig, RtcError};

/// Candidates of an equal's offer that are taken.
const MOST_CANDIDATES: usize = 32;

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
        /// Whether the whole handshake went to and came from there, so that somebody receives at that address. Else it was
        /// only said to be theirs.
        reached: bool,
    },
    /// The other side uses another address.
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
    /// The other side's user fragment and password.
    remote: Option<(String, String)>,
    /// The transaction by which the agent was told of an address that answered a challenge.
    told: Option<[u8; 12]>,
    last_dtls_destination: Option<TransportAddress>,
    handshake: Handshake,
    /// A check came that was signed for this side.
    checked: bool,
    announced: Option<TransportAddress>,
    connected: bool,
    life: Life,
    /// What [`Life`] found when the clock was told last.
    found: Option<Turn>,
    pending: Option<(SdpPendingOffer, String)>,
    /// What the last offer of the other side came to.
    agreed: Agreed,
    media_leaks: u64,
    lacks: Lacks,
    secret: Secret,
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
            remote: None,
            told: None,
            last_dtls_destination: None,
            handshake: Handshake::default(),
            checked: false,
            announced: None,
            connected: false,
            life: Life::default(),
            found: None,
            pending: None,
            agreed: Agreed::default(),
            media_leaks: 0,
            lacks: shared.lacks,
            secret: shared.secret.clone(),
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
        // A lite agent learns addresses by the checks that come from them (RFC 8445, section 6.1.1).
        let candidates = if self.client { MOST_CANDIDATES } else { 0 };
        let parsed = offer::read(offer, candidates).map_err(TransportError::Sdp)?;
        let (before, answer) = self.guarded(|rtc| {
            let before = rtc.direct_api().local_ice_credentials().ufrag;
            (before, rtc.sdp_api().accept_offer(parsed))
        })?;
        self.note_restart(&before);
        let answer = answer.map_err(|error| TransportError::Sdp(words(&error)))?;
        self.remote = sdp::credentials(offer);
        let answer = offer::as_offered(offer, &answer.to_sdp_string(), &self.agreed);
        let answer = sdp::as_preferred(offer, answer);
        let answer = sdp::with_reduced_size(&answer, Some(offer));
        let answer = sdp::without_feedback_on_published_sound(&answer);
        let answer = sdp::with_candidates(&sdp::lacking(answer, self.lacks));
        let negotiated = sdp::negotiated(offer, &answer, true);
        self.agreed = Agreed::of(&answer);
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
            .map_err(|error| TransportError::Sdp(words(&error)))?;
        let before = self.local_ufrag();
        self.rtc
            .sdp_api()
            .accept_answer(pending, parsed)
            .map_err(|error| TransportError::Sdp(words(&error)))?;
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
            .map_err(|error| TransportError::Sdp(words(&error)))?;
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

    /// Makes checks to the other side with the credentials of now. None before its SDP is known.
    pub fn challenger(&mut self) -> Option<Challenger> {
        let own = self.local_ufrag();
        let (ufrag, password) = self.remote.as_ref()?;
        Some(Challenger::new(&own, (ufrag, password), &self.secret))
    }

    /// Answers checks in this side's name. None until a pair is nominated with the credentials of now: a
    /// nomination is the agent's to see.
    pub fn responder(&mut self) -> Option<Responder> {
        let own = self.credentials();
        (self.nominations.receiver() == Some(own.local_ufrag())).then_some(own)
    }

    /// A STUN or DTLS datagram came in, to the own address `destination`. To a server, a success response says that its source
    /// answered a [`Challenger`] of [`IceDtls::challenger`]: the caller has looked at that.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        source: impl Into<TransportAddress>,
        destination: SocketAddr,
        data: &[u8],
    ) -> Result<(), TransportError> {
        let source = source.into();
        self.now = now;
        if !self.client && stun::is_success(data) {
            return self.reached(source, destination, data);
        }
        if is_dtls(data) && !self.connected {
            self.handshake.note(source);
        }
        // A request counts if it was signed for this side; an answer must know the transaction, which is random.
        if is_stun(data) && (!stun::is_request(data) || self.credentials().authenticates(data)) {
            self.checked |= stun::is_request(data);
            self.nominations.observe(now, data, source, true);
        }
        self.hand_over(source, destination, data)
    }

    /// The other side is reached at an address by now, which it need not have nominated: what a NAT gives anew, it does not
    /// know of. The agent sees a nomination then.
    fn reached(
        &mut self,
        source: TransportAddress,
        destination: SocketAddr,
        answer: &[u8],
    ) -> Result<(), TransportError> {
        let id: Option<[u8; 12]> = answer.get(8..20).and_then(|id| id.try_into().ok());
        let (Some(id), Some((ufrag, _))) = (id, self.remote.clone()) else { return Ok(()) };
        if self.nominations.current() == Some(source) {
            return Ok(());
        }
        let priority = self.nominations.priority().unwrap_or(PEER_REFLEXIVE);
        let own = self.credentials();
        let username = format!("{}:{ufrag}", own.local_ufrag());
        let role = Role::Controlling { nominates: true };
        let check = Check { username: &username, id, priority, role, tie_breaker: [0; 8] };
        let mut request = vec![0; username.len() + 100];
        let Some(len) = check.write(own.password(), &mut request) else { return Ok(()) };
        request.truncate(len);
        self.told = Some(id);
        self.nominations.observe(self.now, &request, source, true);
        self.hand_over(source, destination, &request)
    }

    fn hand_over(
        &mut self,
        source: TransportAddress,
        destination: SocketAddr,
        data: &[u8],
    ) -> Result<(), TransportError> {
        let now = self.now;
        let protocol = match source.protocol {
            Protocol::Udp => StrProtocol::Udp,
            Protocol::Tcp => StrProtocol::Tcp,
        };
        // Its parser runs before the transport is touched, so that a panic in it harms nothing.
        let receive = catch_unwind(|| Receive::new(protocol, source.socket, destination, data))
            .map_err(|_| TransportError::Datagram("the parser gave up on it".into()))?
            .map_err(|error| TransportError::Datagram(error.to_string()))?;
        self.guarded(|rtc| rtc.handle_input(Input::Receive(now, receive)))?
            .map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &RtcError) -> TransportError {
        match self.connected {
            true => TransportError::Failed(error.to_string()),
            false => TransportError::of_handshake(error),
        }
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
            let output = self.guarded(Rtc::poll_output)?.map_err(|error| self.failed(&error))?;
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
                        Some(20..=63) => {
                            self.last_dtls_destination = Some(destination);
                            if !self.connected {
                                self.handshake.note(destination);
                            }
                        }
                        _ => {
                            self.nominations.observe(self.now, &data, destination, false);
                            // Nobody waits for the answer to a request that this side made for its agent.
                            if self.told.is_some_and(|id| data.get(8..20) == Some(&id[..])) {
                                self.told = None;
                                continue;
                            }
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
            let reached = remote.is_tcp() || self.handshake == Handshake::At(remote);
            return Some(Event::Connected { keys, remote, reached });
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

    /// Whether a check of ICE came that was signed for this side.
    pub fn was_checked(&self) -> bool {
        self.checked
    }

    /// How many datagrams str0m wanted to send that looked like media: must stay 0.
    pub fn media_leaks(&self) -> u64 {
        self.media_leaks
    }
}

fn is_dtls(data: &[u8]) -> bool {
    matches!(data.first(), Some(20..=63))
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
