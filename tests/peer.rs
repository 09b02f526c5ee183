//! A participant of another make: a plain str0m peer with its own SDP, ICE, DTLS, SRTP, RTP and
//! RTCP. What it understands of moim, others do.

use crate::target::{PATIENCE, Server, Socket};
use lab::bot::fixtures::{Clip, Fixtures, Voice};
use lab::bots::VideoSource;
use serde_json::json;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::format::Codec;
use str0m::media::{Direction, Frequency, KeyframeRequestKind, MediaData, MediaTime, Mid};
use str0m::net::{Protocol, Receive};
use str0m::stats::MediaEgressStats;
use str0m::{Candidate, Event, Input, Output, Rtc};
use wire::room::{self, Answer, Join, Joined, MediaKind, Offer, OfferedTrack};

/// How long a peer rests between two looks at its socket.
const REST: Duration = Duration::from_millis(1);

/// The last frame of a line.
const END: &[u8] = b"end of the line";

/// A frame that was sent.
struct Sent {
    data: Vec<u8>,
    time: MediaTime,
    level: Option<i8>,
}

/// A line that sends.
struct Sending {
    mid: Mid,
    kind: MediaKind,
    due: Option<Instant>,
    next: usize,
    sent: Vec<Sent>,
}

/// The media of a participant.
pub struct Peer {
    name: String,
    rtc: Rtc,
    socket: UdpSocket,
    address: SocketAddr,
    timeout: Instant,
    connected: bool,
    /// Whether it sends frames.
    pub playing: bool,
    voice: Arc<Voice>,
    clip: Arc<Clip>,
    sending: [Sending; 2],
    /// The last datagram of media that left.
    pub last_media: Vec<u8>,
    /// All frames that came.
    pub heard: Vec<MediaData>,
    /// How often each of its tracks was asked for a keyframe: line and kind of request.
    pub keyframe_requests: Vec<(Mid, KeyframeRequestKind)>,
    /// The statistics of what it sends, as they came.
    pub egress: Vec<MediaEgressStats>,
}

/// An offer that waits for its answer.
pub struct Offered {
    pending: SdpPendingOffer,
    /// The SDP.
    pub sdp: String,
    /// What it sends.
    pub tracks: Vec<OfferedTrack>,
    /// Its slots: audio, video.
    pub slots: [Mid; 2],
}

/// A participant's place in the room.
pub struct Seat {
    /// His socket.
    pub socket: Socket,
    /// The answer to his joining.
    pub joined: Joined,
    /// His tracks: audio, video.
    pub tracks: [String; 2],
    /// His slots: audio, video.
    pub slots: [Mid; 2],
    /// The server's ICE user fragment towards them: what their checks name.
    pub ufrag: String,
}

impl Peer {
    /// A peer that says the `voice`th voice, and its first offer.
    pub fn offering(name: &str, voice: u32) -> (Self, Offered) {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        let mut rtc = Rtc::builder()
            .set_crypto_provider(Arc::new(str0m::crypto::from_feature_flags()))
            .clear_codecs()
            .enable_opus(true, false)
            .enable_vp8(true)
            .set_rtcp_report_interval_audio(second)
            .set_rtcp_report_interval_video(second)
            .set_stats_interval(Some(second / 2))
            .build(now);
        rtc.add_local_candidate(Candidate::host(address, "udp").unwrap());
        let kinds = [MediaKind::Audio, MediaKind::Video];
        let mut api = rtc.sdp_api();
        let mut add = |kind, direction| {
            let kind = match kind {
                MediaKind::Audio => str0m::media::MediaKind::Audio,
                MediaKind::Video => str0m::media::MediaKind::Video,
            };
            api.add_media(kind, direction, None, None, None)
        };
        let mids = kinds.map(|kind| add(kind, Direction::SendOnly));
        let slots = kinds.map(|kind| add(kind, Direction::RecvOnly));
        let (offer, pending) = api.apply().unwrap();
        let name_of = |kind| if kind == MediaKind::Audio { "microphone" } else { "camera" };
        let tracks = mids.iter().zip(kinds).map(|(mid, kind)| OfferedTrack {
            mid: mid.to_string(),
            kind,
            name: name_of(kind).into(),
            opaque: false,
            content_hint: wire::room::ContentHint::Speech,
            layers: Vec::new(),
        });
        let offered =
            Offered { pending, sdp: offer.to_sdp_string(), tracks: tracks.collect(), slots };
        let sending = [0, 1].map(|at| {
            let (mid, kind) = (mids[at], kinds[at]);
            Sending { mid, kind, due: None, next: 0, sent: Vec::new() }
        });
        let fixtures = Fixtures::embedded().unwrap();
        let peer = Self {
            name: name.to_owned(),
            rtc,
            socket,
            address,
            timeout: now,
            connected: false,
            playing: true,
            voice: fixtures.voice(voice),
            clip: fixtures.clip(VideoSource::P360).unwrap(),
            sending,
            last_media: Vec::new(),
            heard: Vec::new(),
            keyframe_requests: Vec::new(),
            egress: Vec::new(),
        };
        (peer, offered)
    }

    /// Joins a room with media; the session is the name.
    pub fn join(server: &Server, room: &str, name: &str, voice: u32) -> (Self, Seat) {
        let mut socket = Socket::connect(server);
        let session = Some(name.to_owned());
        let join = Join {
            room: room.to_owned(),
            name: name.to_owned(),
            session: session.clone(),
            ..Join::default()
        };
        let joined = socket.ask(room::JOIN, json!(join));
        let joined: Joined = serde_json::from_value(joined).unwrap();
        let (mut peer, offered) = Self::offering(name, voice);
        let offer = Offer { sdp: offered.sdp.clone(), tracks: offered.tracks.clone(), session };
        let answer = socket.ask(room::OFFER, json!(offer));
        let answer: Answer = serde_json::from_value(answer).unwrap();
        let parsed = SdpAnswer::from_sdp_string(&answer.sdp).unwrap();
        peer.rtc.sdp_api().accept_answer(offered.pending, parsed).unwrap();
        let tracks = [0, 1].map(|at| answer.tracks[at].id.clone());
        let ufrag = answer.sdp.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:")).unwrap();
        let ufrag = ufrag.to_owned();
        (peer, Seat { socket, joined, tracks, slots: offered.slots, ufrag })
    }

    /// The same socket once more, to send from the peer's own address.
    pub fn own_socket(&self) -> UdpSocket {
        self.socket.try_clone().unwrap()
    }

    /// From now on it shows this.
    pub fn show(&mut self, clip: Clip) {
        self.clip = Arc::new(clip);
    }

    /// From now on its packets come from another port, and it does not know: as after a NAT forgot.
    pub fn rebind(&mut self) -> [SocketAddr; 2] {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let old = std::mem::replace(&mut self.socket, socket).local_addr().unwrap();
        [old, self.socket.local_addr().unwrap()]
    }

    /// Offers again with new ICE credentials, and takes the answer.
    pub fn restart_ice(&mut self, seat: &mut Seat) {
        let mut api = self.rtc.sdp_api();
        api.ice_restart(true);
        let (offer, pending) = api.apply().unwrap();
        let sdp = offer.to_sdp_string();
        let offer = Offer { sdp, tracks: self.tracks(), session: Some(self.name.clone()) };
        let answer = seat.socket.ask(room::OFFER, json!(offer));
        let answer: Answer = serde_json::from_value(answer).unwrap();
        let parsed = SdpAnswer::from_sdp_string(&answer.sdp).unwrap();
        self.rtc.sdp_api().accept_answer(pending, parsed).unwrap();
    }

    fn tracks(&self) -> Vec<OfferedTrack> {
        let name_of = |kind| if kind == MediaKind::Audio { "microphone" } else { "camera" };
        let lines = self.sending.iter();
        let track = |line: &Sending| OfferedTrack {
            mid: line.mid.to_string(),
            kind: line.kind,
            name: name_of(line.kind).into(),
            opaque: false,
            content_hint: wire::room::ContentHint::Speech,
            layers: Vec::new(),
        };
        lines.map(track).collect()
    }

    /// The lines that send: audio, video.
    pub fn lines(&self) -> [Mid; 2] {
        [self.sending[0].mid, self.sending[1].mid]
    }

    /// Frames of a kind that came.
    pub fn heard_of(&self, kind: MediaKind) -> impl Iterator<Item = &MediaData> {
        self.heard.iter().filter(move |frame| kind_of(frame) == kind)
    }

    /// Asks for a keyframe of what comes on a line.
    pub fn request_keyframe(&mut self, line: Mid) {
        let mut writer = self.rtc.writer(line).unwrap();
        writer.request_keyframe(None, KeyframeRequestKind::Pli).unwrap();
    }

    /// Takes what came, sends what is due.
    fn step(&mut self) {
        let mut buffer = [0; 2048];
        while let Ok((len, from)) = self.socket.recv_from(&mut buffer) {
            let receive = Receive::new(Protocol::Udp, from, self.address, &buffer[..len]).unwrap();
            self.input(Input::Receive(Instant::now(), receive));
        }
        let now = Instant::now();
        if now >= self.timeout {
            self.input(Input::Timeout(now));
        }
        if self.connected && self.playing {
            self.play(now);
        }
        assert!(self.rtc.is_alive(), "{}: the transport ended", self.name);
    }

    fn input(&mut self, input: Input<'_>) {
        self.rtc.handle_input(input).unwrap();
        loop {
            match self.rtc.poll_output().unwrap() {
                Output::Timeout(at) => {
                    self.timeout = at;
                    return;
                }
                Output::Transmit(transmit) => {
                    let media = matches!(transmit.contents[..], [128..=191, second, ..]
                        if !(192..=223).contains(&second));
                    if media {
                        self.last_media = transmit.contents.to_vec();
                    }
                    // What the kernel does not take is lost, as on any path.
                    let _ = self.socket.send_to(&transmit.contents, transmit.destination);
                }
                Output::Event(event) => self.event(event),
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Connected => self.connected = true,
            Event::MediaData(data) => self.heard.push(data),
            Event::MediaEgressStats(stats) => self.egress.push(stats),
            Event::KeyframeRequest(request) => {
                self.keyframe_requests.push((request.mid, request.kind));
                let line = self.sending.iter_mut().find(|line| line.mid == request.mid).unwrap();
                line.next = self.clip.keyframe_from(line.next % self.clip.frames.len());
            }
            _ => {}
        }
    }

    /// Sends the frames that are due: those of the fixtures, as if they came from an encoder.
    fn play(&mut self, now: Instant) {
        for at in 0..self.sending.len() {
            let line = &mut self.sending[at];
            let due = *line.due.get_or_insert(now);
            if due > now {
                continue;
            }
            let (data, level, interval_ms) = match line.kind {
                MediaKind::Audio => {
                    let packet = &self.voice.packets[line.next % self.voice.packets.len()];
                    (packet.data.clone(), Some(-(packet.level_dbov as i8)), 20)
                }
                MediaKind::Video => {
                    (self.clip.frames[line.next % self.clip.frames.len()].data.clone(), None, 50)
                }
            };
            line.due = Some(due + Duration::from_millis(interval_ms));
            line.next += 1;
            self.send(at, due, data, level);
        }
    }

    /// Sends a frame on a line.
    fn send(&mut self, at: usize, due: Instant, data: Vec<u8>, level: Option<i8>) {
        let line = &mut self.sending[at];
        let (ticks, frequency) = match line.kind {
            MediaKind::Audio => (960, Frequency::FORTY_EIGHT_KHZ),
            MediaKind::Video => (4500, Frequency::NINETY_KHZ),
        };
        let time = MediaTime::new(line.sent.len() as u64 * ticks, frequency);
        let mut writer = self.rtc.writer(line.mid).unwrap();
        if let Some(level) = level {
            writer = writer.audio_level(level, true);
        }
        let payload_type = writer.payload_params().next().unwrap().pt();
        writer.write(payload_type, due, time, data.as_slice()).unwrap();
        line.sent.push(Sent { data, time, level });
        self.input(Input::Timeout(Instant::now()));
    }

    /// Sends a last frame on each line, like no other, and then no more.
    fn end(&mut self) {
        self.playing = false;
        for at in 0..self.sending.len() {
            let due = self.sending[at].due.unwrap_or_else(Instant::now);
            // An odd first byte is no VP8 keyframe (RFC 6386 §9.1).
            self.send(at, due, END.to_vec(), (at == 0).then_some(-100));
        }
    }
}

/// Audio or video.
fn kind_of(frame: &MediaData) -> MediaKind {
    if frame.params.spec().codec == Codec::Opus { MediaKind::Audio } else { MediaKind::Video }
}

/// Runs peers until `done`; panics with `what` after [`PATIENCE`].
pub fn run(peers: &mut [&mut Peer], what: &str, done: impl FnMut(&mut [&mut Peer]) -> bool) {
    run_for(PATIENCE, peers, what, done);
}

/// [`run`] with another patience.
pub fn run_for(
    patience: Duration,
    peers: &mut [&mut Peer],
    what: &str,
    mut done: impl FnMut(&mut [&mut Peer]) -> bool,
) {
    let begin = Instant::now();
    while !done(peers) {
        assert!(begin.elapsed() < patience, "{what}: not within {patience:?}");
        peers.iter_mut().for_each(|peer| peer.step());
        std::thread::sleep(REST);
    }
}

/// Runs two peers until each got the first picture and sound of the other.
pub fn meet(peers: &mut [&mut Peer; 2]) {
    run(peers, "sound and pictures both ways", |peers| {
        let kinds = [MediaKind::Audio, MediaKind::Video];
        peers.iter().all(|peer| kinds.iter().all(|kind| peer.heard_of(*kind).count() > 0))
    });
}

/// Two peers send no more; runs them until each has the last frames of the other.
pub fn finish(peers: &mut [&mut Peer; 2]) {
    peers.iter_mut().for_each(|peer| peer.end());
    run(peers, "the last frames", |peers| {
        let kinds = [MediaKind::Audio, MediaKind::Video];
        let ended = |peer: &Peer, kind| peer.heard_of(kind).any(|frame| *frame.data == *END);
        peers.iter().all(|peer| kinds.iter().all(|kind| ended(peer, *kind)))
    });
}

/// What `to` heard of a kind must be what `from` sent: every frame from the first one on, byte
/// for byte, in order, on one line, in the same measure of time, with the same levels. Returns
/// how many frames these are.
pub fn assert_same(from: &Peer, to: &Peer, kind: MediaKind) -> usize {
    let sent = &from.sending.iter().find(|line| line.kind == kind).unwrap().sent;
    let heard: Vec<&MediaData> = to.heard_of(kind).collect();
    let told = format!("{kind:?} from {} to {}", from.name, to.name);
    assert!(!heard.is_empty() && heard.len() <= sent.len(), "{told}: {} frames", heard.len());
    // All that was sent last: what came before is from before the slot was there.
    let missed = sent.len() - heard.len();
    for (nth, (heard_frame, sent_frame)) in heard.iter().zip(&sent[missed..]).enumerate() {
        let told = format!("{told}: frame {nth} of {}, {missed} before", heard.len());
        assert!(*heard_frame.data == sent_frame.data[..], "{told}: another content");
        assert!(heard_frame.contiguous, "{told}: a gap before it");
        assert_eq!(heard_frame.mid, heard[0].mid, "{told}: another line");
        let passed = |now: &MediaTime, first: &MediaTime| now.numer() - first.numer();
        assert_eq!(
            passed(&heard_frame.time, &heard[0].time),
            passed(&sent_frame.time, &sent[missed].time),
            "{told}: another time"
        );
        assert_eq!(heard_frame.ext_vals.audio_level, sent_frame.level, "{told}: another level");
    }
    heard.len()
}

/// When `from` began to send, as its frames and the sender reports with them tell `to`.
pub fn told_beginning(from: &Peer, to: &Peer, kind: MediaKind) -> SystemTime {
    let sent = &from.sending.iter().find(|line| line.kind == kind).unwrap().sent;
    let last = to.heard_of(kind).last().unwrap();
    let report = last.last_sender_info.unwrap();
    let rate = f64::from(last.time.denom());
    let seconds = |ticks: f64| Duration::from_secs_f64(ticks / rate);
    let ticks = |time: &MediaTime| time.numer() as u32; // As on the wire.
    let since_report = ticks(&last.time).wrapping_sub(ticks(&report.rtp_time)) as i32;
    let since_beginning = sent.last().unwrap().time.numer() as f64;
    let at = if since_report < 0 {
        report.ntp_time - seconds(-f64::from(since_report))
    } else {
        report.ntp_time + seconds(f64::from(since_report))
    };
    at - seconds(since_beginning)
}
