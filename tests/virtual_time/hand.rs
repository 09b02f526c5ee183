//! Packets made by hand: a test says what is sent when, and reads what leaves the server.

use super::world::World;
use audio::opus::{Application, Encoder, EncoderOptions, MAX_PACKET};
use audio::tone::Sine;
use engine::PersonKey;
use rtp::header::{AudioLevel, HeaderWriter};
use rtp::negotiated::{Direction, Kind, Line};
use rtp::rtcp::{self, ReportBlock};
use rtp::srtp::{Opener, SealStream, Sealer};
use rtp::twcc::Feedback;
use rtp::{RtpHeader, header};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::Duration;

/// Level of silence, and of a voice, in −dBov.
pub const SILENT: u8 = 127;
pub const LOUD: u8 = 20;
/// A packet of sound, in units of its clock and in time.
pub const PACKET: u32 = 960;
pub const PACKET_TIME: Duration = Duration::from_millis(20);

/// The payload type with which `transport::Fixed` has pictures sent again.
const RTX: u8 = 97;
/// Where `transport::Fixed` puts dependency descriptors.
const DEPENDENCY_ID: u8 = 12;

/// A packet to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    pub payload_type: u8,
    pub marker: bool,
    pub level_dbov: Option<u8>,
    pub payload: &'a [u8],
}

/// One stream of a person, sent by hand.
pub struct Hand {
    pub key: PersonKey,
    pub line: Line,
    sealer: Sealer,
    stream: SealStream,
    /// Those before it that it may go back to.
    past: Vec<SealStream>,
    rtx: Option<(SealStream, u16)>,
    /// The line's mid goes with each packet, so that a new SSRC is found.
    names_mid: bool,
    /// The RTP stream id of the layer, which goes with it.
    rid: Option<String>,
    pub sequence: u16,
    pub timestamp: u32,
    /// Packets of sound said so far.
    pub said: u32,
    /// What is in a packet that is not silent.
    pub sounds_like: &'static Sound,
    /// What its packets say in place of their level, if its client has another one or none.
    pub claims: Option<Option<u8>>,
    /// The dependency descriptor of the next packets, if it is not empty.
    pub dependency: Vec<u8>,
    /// The transport-wide number of the next packet, if packets have one.
    pub transport_sequence: Option<u16>,
}

/// One packet of Opus, encoded once.
pub type Sound = LazyLock<Vec<u8>>;
pub static SILENCE: Sound = LazyLock::new(|| encoded(0.0));
pub static VOICE: Sound = LazyLock::new(|| encoded(0.2));

/// The first packet of a tone, which needs none before it.
fn encoded(amplitude: f32) -> Vec<u8> {
    let options = EncoderOptions { application: Application::LowDelay, ..Default::default() };
    let (mut pcm, mut packet) = ([0.0; PACKET as usize], [0; MAX_PACKET]);
    Sine::new(440.0, 1.0).fill(&mut pcm);
    pcm.iter_mut().for_each(|sample| *sample *= amplitude);
    let len = Encoder::new(options).unwrap().encode(&pcm, &mut packet).unwrap();
    packet[..len].to_vec()
}

/// The same sound with an id in its padding (RFC 6716 §3.2.5).
fn opus(sound: &[u8], id: &[u8]) -> Vec<u8> {
    let (toc, frame) = sound.split_first().expect("a packet");
    assert_eq!(toc & 3, 0, "one frame");
    let head = [toc | 3, 0x41, id.len() as u8];
    [&head, frame, id].concat()
}

impl Hand {
    /// The stream of a kind of a person who does not send it himself.
    pub fn new(world: &mut World, key: PersonKey, kind: Kind) -> Self {
        Self::of(world, key, kind, None)
    }

    /// A layer of the picture of a person who does not send it himself.
    pub fn layer(world: &mut World, key: PersonKey, layer: usize) -> Self {
        Self::of(world, key, Kind::Video, Some(layer))
    }

    fn of(world: &mut World, key: PersonKey, kind: Kind, layer: Option<usize>) -> Self {
        let client = world.client(key);
        let sends = |line: &&Line| line.direction == Direction::Send && line.codec.kind() == kind;
        let line = client.negotiated.lines.iter().find(sends).expect("he may send it").clone();
        let mut sealer = Sealer::new(&client.keys.local);
        let layer = layer.map(|layer| &line.layers[layer]);
        let ids = layer.map_or(line.local, |layer| layer.ids).expect("it has an SSRC");
        let ssrc = ids.ssrc;
        let stream = sealer.stream(ssrc).expect("nobody else sends it");
        let rtx = ids.rtx.map(|ssrc| (sealer.stream(ssrc).expect("nobody else sends it"), 1));
        let (names_mid, rid) = (layer.is_some(), layer.map(|layer| layer.rid.clone()));
        Self {
            key,
            sealer,
            stream,
            past: Vec::new(),
            rtx,
            names_mid,
            rid,
            sequence: ssrc as u16 & 0x3FFF,
            timestamp: ssrc,
            said: 0,
            sounds_like: &VOICE,
            claims: None,
            dependency: Vec::new(),
            transport_sequence: None,
            line,
        }
    }

    /// A new stream of the same line: another SSRC, sequence numbers and timestamps from elsewhere.
    pub fn begin_anew(&mut self, ssrc: u32) {
        self.begin(ssrc);
        self.names_mid = true;
    }

    /// The same without a name: its packets have no MID.
    pub fn begin_unnamed(&mut self, ssrc: u32) {
        self.begin(ssrc);
        self.names_mid = false;
    }

    fn begin(&mut self, ssrc: u32) {
        let stream = match self.past.iter().position(|past| past.ssrc() == ssrc) {
            Some(at) => self.past.remove(at),
            None => self.sealer.stream(ssrc).expect("nobody sends it"),
        };
        self.past.push(std::mem::replace(&mut self.stream, stream));
        (self.sequence, self.timestamp) = (ssrc as u16, self.timestamp.wrapping_sub(1 << 30));
    }

    /// The SSRC that it sends with.
    pub fn ssrc(&self) -> u32 {
        self.stream.ssrc()
    }

    /// Sends the packet of a number that never came, as a retransmission (RFC 4588).
    pub fn send_again(&mut self, world: &mut World, original: u16, marker: bool, payload: &[u8]) {
        let (stream, sequence) = self.rtx.as_mut().expect("the line has retransmissions");
        let writer = HeaderWriter {
            marker,
            payload_type: self.line.rtx_payload_type.expect("and a format for them"),
            sequence: *sequence,
            timestamp: self.timestamp,
            ssrc: stream.ssrc(),
            extensions: &[],
        };
        *sequence += 1;
        let mut buffer = vec![0; 1500];
        let header_len = writer.write(&mut buffer).expect("it fits");
        let body = [&original.to_be_bytes(), payload].concat();
        let len = header_len + body.len();
        buffer[header_len..len].copy_from_slice(&body);
        let sealed = self.sealer.seal_rtp(stream, &mut buffer, header_len, len);
        buffer.truncate(sealed.expect("it can be sealed"));
        world.send(self.key, buffer);
    }

    /// Sends a packet of 20 ms that says whose and the how many-th it is.
    pub fn say(&mut self, world: &mut World, level_dbov: u8) {
        let id = [self.key.0.to_be_bytes(), u64::from(self.said).to_be_bytes()].concat();
        let payload = opus(if level_dbov == SILENT { &SILENCE } else { self.sounds_like }, &id);
        let level_dbov = self.claims.unwrap_or(Some(level_dbov));
        let payload_type = self.line.payload_type;
        self.send(world, Packet { payload_type, marker: false, level_dbov, payload: &payload });
        self.said += 1;
        self.timestamp = self.timestamp.wrapping_add(PACKET);
    }

    /// Sends a packet; its timestamp stays for the next one.
    pub fn send(&mut self, world: &mut World, packet: Packet<'_>) {
        self.send_padded(world, packet, 0);
    }

    /// The same with so many bytes of padding (RFC 3550 §5.1).
    pub fn send_padded(&mut self, world: &mut World, packet: Packet<'_>, padding: u8) {
        let Packet { payload_type, marker, level_dbov, payload } = packet;
        let level =
            level_dbov.map(|level| [AudioLevel { voice: true, level_dbov: level }.to_byte()]);
        let level = self.line.extensions.audio_level.zip(level.as_ref());
        let mid = self.line.extensions.mid.filter(|_| self.names_mid);
        let mid = mid.map(|id| (id, self.line.mid.as_bytes()));
        let rid = self.line.extensions.rid.zip(self.rid.as_ref().map(|rid| rid.as_bytes()));
        let dependency = self.line.extensions.dependency.zip(Some(self.dependency.as_slice()));
        let dependency = dependency.filter(|(_, value)| !value.is_empty());
        let number = self.transport_sequence.map(u16::to_be_bytes);
        let number = self.line.extensions.transport_sequence.zip(number.as_ref());
        let bytes = level.iter().map(|(id, byte)| (*id, byte.as_slice()));
        let bytes = bytes.chain(number.map(|(id, number)| (id, number.as_slice())));
        let extensions: Vec<(u8, &[u8])> = bytes.chain(mid).chain(rid).chain(dependency).collect();
        let writer = HeaderWriter {
            marker,
            payload_type,
            sequence: self.sequence,
            timestamp: self.timestamp,
            ssrc: self.stream.ssrc(),
            extensions: &extensions,
        };
        let mut buffer = vec![0; 1500];
        let header_len = writer.write(&mut buffer).expect("it fits");
        let len = header_len + payload.len();
        buffer[header_len..len].copy_from_slice(payload);
        let len = len + usize::from(padding);
        if padding > 0 {
            buffer[0] |= 0x20;
            buffer[len - 1] = padding;
        }
        let sealed = self.sealer.seal_rtp(&mut self.stream, &mut buffer, header_len, len);
        buffer.truncate(sealed.expect("it can be sealed"));
        self.sequence = self.sequence.wrapping_add(1);
        self.transport_sequence = self.transport_sequence.map(|number| number.wrapping_add(1));
        world.send(self.key, buffer);
    }
}

/// A packet that left the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    pub ssrc: u32,
    pub payload_type: u8,
    pub marker: bool,
    pub sequence: u16,
    pub timestamp: u32,
    pub payload: Vec<u8>,
    /// Its dependency descriptor, if it has one.
    pub dependency: Option<Vec<u8>>,
    /// Bytes of the datagram.
    pub datagram: usize,
}

impl Heard {
    /// Who said it, and his how many-th packet it is, where [`Hand::say`] made it.
    pub fn said(&self) -> Option<(u64, u64)> {
        said(&self.payload)
    }
}

/// Who said a payload, and their how many-th packet it is, where [`Hand::say`] made it.
pub fn said(payload: &[u8]) -> Option<(u64, u64)> {
    let (rest, count) = payload.split_last_chunk()?;
    let who = rest.last_chunk()?;
    Some((u64::from_be_bytes(*who), u64::from_be_bytes(*count)))
}

/// All that leaves the server for some people, in order.
#[derive(Clone, Default)]
pub struct Ears(Rc<RefCell<ByAddress>>, Rc<RefCell<Reports>>, Rc<RefCell<Firsts>>);

/// The first number that each stream of pictures began with, by receiver and SSRC.
type Firsts = BTreeMap<(SocketAddr, u32), [u8; 2]>;

/// What the server told publishers of how their packets come.
#[derive(Default)]
struct Reports {
    blocks: Vec<ReportBlock>,
    /// Transport-wide numbers of the packets that came, in each datagram that tells of any.
    arrivals: Vec<Vec<u16>>,
}

/// Who is at an address, what opens his packets, and what he got.
type ByAddress = BTreeMap<SocketAddr, (PersonKey, Opener, Vec<Heard>)>;

impl Ears {
    /// Hears what these people are sent from now on.
    pub fn of(world: &mut World, people: &[PersonKey]) -> Self {
        let ears = Self::default();
        for key in people {
            let opener = Opener::new(&world.client(*key).keys.remote);
            let address = world.person(*key).address;
            ears.0.borrow_mut().insert(address, (*key, opener, Vec::new()));
        }
        let hearing = ears.clone();
        world.eats = Box::new(move |to_server, person, bytes| {
            match header::is_rtcp(bytes[1]) {
                _ if to_server => {}
                true => hearing.take_report(person, bytes),
                false => hearing.take(person, bytes),
            }
            false
        });
        ears
    }

    fn take(&self, person: SocketAddr, bytes: &[u8]) {
        let mut all = self.0.borrow_mut();
        let Some((_, opener, heard)) = all.get_mut(&person) else { return };
        let mut plain = vec![0; bytes.len()];
        let opened = opener.open_rtp(bytes, &mut plain).expect("the server seals for him");
        let header = opened.header;
        let range = header.payload_range(&plain[..opened.len]).expect("a packet");
        let RtpHeader { ssrc, payload_type, marker, sequence, timestamp, .. } = header;
        if range.is_empty() {
            // Padding, which probes the path.
            return;
        }
        let payload = plain[range].to_vec();
        let mut firsts = self.2.borrow_mut();
        let mut of_person = firsts.range((person, 0)..=(person, u32::MAX));
        if payload_type == RTX && of_person.any(|(_, first)| payload.starts_with(first)) {
            // The first packet of a picture goes once more, unasked.
            return;
        }
        firsts.entry((person, ssrc)).or_insert(sequence.to_be_bytes());
        let dependency = header.find_extension(&plain, DEPENDENCY_ID).map(<[u8]>::to_vec);
        heard.push(Heard {
            ssrc,
            payload_type,
            marker,
            sequence,
            timestamp,
            payload,
            dependency,
            datagram: bytes.len(),
        });
    }

    fn take_report(&self, person: SocketAddr, bytes: &[u8]) {
        let mut all = self.0.borrow_mut();
        let Some((_, opener, _)) = all.get_mut(&person) else { return };
        let mut plain = vec![0; bytes.len()];
        let len = opener.open_rtcp(bytes, &mut plain).expect("the server seals for them");
        let mut reports = self.1.borrow_mut();
        for packet in rtcp::parse(&plain[..len]).flatten() {
            match packet {
                rtcp::Packet::ReceiverReport(report) => reports.blocks.extend(report.blocks()),
                rtcp::Packet::TransportFeedback { fci, .. } => {
                    let feedback = Feedback::parse(fci).expect("the server's feedback");
                    let came = feedback.packets().filter(|(_, at)| at.is_some());
                    reports.arrivals.push(came.map(|(number, _)| number).collect());
                }
                _ => {}
            }
        }
    }

    /// What the server reported of the streams that came from these people.
    pub fn take_reports(&self) -> Vec<ReportBlock> {
        std::mem::take(&mut self.1.borrow_mut().blocks)
    }

    /// Transport-wide numbers of the packets that the server said to have come, in each datagram that tells of any.
    pub fn take_arrivals(&self) -> Vec<Vec<u16>> {
        std::mem::take(&mut self.1.borrow_mut().arrivals)
    }

    /// What somebody was sent since the last call.
    pub fn take_all(&self, key: PersonKey) -> Vec<Heard> {
        let mut all = self.0.borrow_mut();
        let (.., heard) = all.values_mut().find(|(who, ..)| *who == key).expect("he is heard for");
        std::mem::take(heard)
    }
}
