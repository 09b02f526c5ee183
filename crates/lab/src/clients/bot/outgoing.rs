//! One stream that a bot sends: headers, sealing, repair, and what the other side says of it.

use super::packets::{HEAD, Piece};
use super::padding;
use super::source::{AudioSource, VideoSource};
use crate::base::SplitMix;
use rtp::header::{AudioLevel, HeaderWriter};
use rtp::losses::Losses;
use rtp::negotiated::{Codec, Extensions, Kind, Line, StreamIds};
use rtp::red::Recent;
use rtp::report::{Ntp, SendStream};
use rtp::rtcp::{ReportBlock, SenderInfo};
use rtp::srtp::{SealStream, Sealer, SrtpError};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use wire::quality::SentTrack;
use wire::room::MediaKind;

/// Longest datagram that is made.
pub(super) const MAX_DATAGRAM: usize = 1500;
/// Packets that can be sent again.
const HISTORY: usize = 512;
/// A packet is not sent again twice in this time: the second NACK crossed the first answer.
const RESEND_SPACING: Duration = Duration::from_millis(15);
/// The `mid` extension is on every packet for so long; by then the other side knows the SSRC. On a line with layers it is
/// on all of them: nothing but `mid` and `rid` tells these streams.
const MID_TIME: Duration = Duration::from_secs(3);
/// A level up to this is called voice (RFC 6464 leaves it to the sender).
const VOICE_DBOV: u8 = 55;

/// The wall clock of a session, from one reading at its start.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// A moment…
    pub origin: Instant,
    /// …and that moment since the Unix epoch.
    pub unix: Duration,
}

impl Clock {
    /// The time since the Unix epoch at `now`.
    pub fn unix_at(&self, now: Instant) -> Duration {
        match now.checked_duration_since(self.origin) {
            Some(after) => self.unix + after,
            None => self.unix.saturating_sub(self.origin.duration_since(now)),
        }
    }

    /// The NTP time at `now`.
    pub fn ntp_at(&self, now: Instant) -> Ntp {
        Ntp::from_unix(self.unix_at(now))
    }
}

/// What all streams of a session send by.
pub(super) struct Sending<'a> {
    pub(super) sealer: &'a Sealer,
    pub(super) clock: Clock,
    pub(super) transport_sequence: &'a mut u16,
    pub(super) now: Instant,
    /// Whether packets of sound say by padding when they were said, if the server does not hand on an extension for that.
    pub(super) pads: bool,
    pub(super) sink: &'a mut dyn FnMut(&[u8]),
}

impl Sending<'_> {
    /// The wall clock as an NTP timestamp.
    fn ntp(&self) -> u64 {
        self.clock.ntp_at(self.now).0
    }
}

/// What the stream plays.
#[derive(Debug)]
pub(super) enum Source {
    Audio(AudioSource),
    Video(Box<VideoSource>),
}

impl Source {
    /// The RTP timestamp of what is captured at `now`.
    fn timestamp_at(&self, now: Instant) -> u32 {
        match self {
            Self::Audio(audio) => audio.timestamp_at(now),
            Self::Video(video) => video.timestamp_at(now),
        }
    }
}

/// A stream that this side sends on a line: the only one, or one of its layers.
pub(super) struct Stream<'a> {
    line: &'a Line,
    ids: StreamIds,
    /// Which layer, from 0 for the smallest picture, and its RTP stream id.
    layer: Option<(u8, &'a str)>,
}

impl<'a> Stream<'a> {
    /// All of a line, the smallest picture first.
    pub(super) fn of(line: &'a Line) -> impl Iterator<Item = Self> {
        let only = line.local.filter(|_| line.layers.is_empty());
        let only = only.map(|ids| Self { line, ids, layer: None });
        let layers = (0..).zip(&line.layers);
        let layers = layers.filter_map(move |(place, layer)| {
            Some(Self { line, ids: layer.ids?, layer: Some((place, layer.rid.as_str())) })
        });
        only.into_iter().chain(layers)
    }
}

/// A packet that can be sent again.
#[derive(Debug)]
struct Sent {
    sequence: u16,
    piece: Piece,
    /// The datagram, if it goes again as it was.
    datagram: Vec<u8>,
    resent: Option<Instant>,
}

/// What is sent again to who asks for it (RFC 4585).
#[derive(Debug)]
struct Repair {
    history: VecDeque<Sent>,
    wanted: VecDeque<u16>,
    /// None: packets go again as they were.
    rtx: Option<Rtx>,
}

/// A stream of retransmissions (RFC 4588).
#[derive(Debug)]
struct Rtx {
    payload_type: u8,
    seal: SealStream,
    sequence: u16,
}

/// Sound that repeats itself while the other side loses packets (RFC 2198).
#[derive(Debug)]
struct Red {
    payload_type: u8,
    losses: Losses,
    /// The last packets, while the next one repeats some of them.
    recent: Option<Box<Recent>>,
    /// The payload that leaves.
    payload: Vec<u8>,
}

impl Red {
    fn new(line: &Line) -> Option<Self> {
        let payload_type = line.red_payload_type?;
        let (losses, payload) = (Losses::default(), Vec::new());
        Some(Self { payload_type, losses, recent: None, payload })
    }

    /// A report tells that `lost`/256 of so many packets were lost.
    fn on_report(&mut self, packets: u32, lost: u8) {
        if let Some(copies) = self.losses.report(packets, lost) {
            Recent::repeat(&mut self.recent, copies);
        }
    }

    /// The payload with copies of packets before it, if it repeats any.
    fn with_copies(
        &mut self,
        opus_type: u8,
        sequence: u16,
        timestamp: u32,
        opus: &[u8],
    ) -> Option<(u8, &[u8])> {
        let recent = self.recent.as_mut()?;
        let copies = recent.before(opus_type, sequence, timestamp);
        let repeats = copies.is_some();
        if let Some(copies) = copies {
            self.payload.clear();
            copies.parts().iter().for_each(|part| self.payload.extend_from_slice(part));
            self.payload.extend_from_slice(opus);
        }
        recent.keep(sequence, timestamp, opus);
        repeats.then_some((self.payload_type, &self.payload))
    }
}

/// What one interval had.
#[derive(Debug, Default)]
struct Interval {
    packets: u64,
    bytes: u64,
    frames: u64,
    resent: u64,
    keyframe_requests: u64,
}

#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) kind: Kind,
    pub(super) ssrc: u32,
    pub(super) source: Source,
    pub(super) stats: SendStream,
    pub(super) stopped: bool,
    mid: String,
    /// Its RTP stream id, on a line with layers.
    rid: Option<String>,
    /// Its place among the layers of its line, from 0 for the smallest picture.
    layer: u8,
    codec: Codec,
    payload_type: u8,
    extensions: Extensions,
    seal: SealStream,
    sequence: u16,
    repair: Option<Repair>,
    red: Option<Red>,
    began: Instant,
    first_packet: bool,
    interval: Interval,
    /// (extended highest sequence, cumulative lost) of the last report and of the last sample.
    reported: Option<(u32, i32)>,
    reported_before: (u32, i32),
    last_fir: Option<u8>,
}

/// What a packet carries and how it is marked.
struct Packet<'a> {
    marker: bool,
    timestamp: u32,
    level: Option<u8>,
    payload: (&'a [u8], &'a [u8]),
}

impl Outgoing {
    /// A stream of a negotiated line. Errors: the SSRC is in use.
    pub(super) fn new(
        stream: &Stream<'_>,
        source: Source,
        sealer: &mut Sealer,
        random: &mut SplitMix,
        now: Instant,
    ) -> Result<Self, SrtpError> {
        let Stream { line, ids, layer } = *stream;
        let rtx = match (ids.rtx, line.rtx_payload_type) {
            (Some(ssrc), Some(payload_type)) if line.nack => Some(Rtx {
                payload_type,
                seal: sealer.stream(ssrc)?,
                sequence: random.below(1 << 14) as u16,
            }),
            _ => None,
        };
        // Sound is not sent again.
        let repaired = line.nack && line.codec.kind() == Kind::Video;
        let repair = repaired.then(|| Repair {
            history: VecDeque::with_capacity(HISTORY),
            wanted: VecDeque::new(),
            rtx,
        });
        // Below 2^15, so that losing the first packets cannot hide a rollover.
        let sequence = 1 + random.below(1 << 14) as u16;
        Ok(Self {
            kind: line.codec.kind(),
            ssrc: ids.ssrc,
            source,
            stats: SendStream::new(ids.ssrc, line.codec.clock_rate()),
            stopped: false,
            mid: line.mid.clone(),
            rid: layer.map(|(_, rid)| rid.to_owned()),
            layer: layer.map_or(0, |(place, _)| place),
            codec: line.codec,
            payload_type: line.payload_type,
            extensions: line.extensions,
            seal: sealer.stream(ids.ssrc)?,
            sequence,
            repair,
            red: Red::new(line),
            began: now,
            first_packet: true,
            interval: Interval::default(),
            reported: None,
            reported_before: (u32::from(sequence) - 1, 0),
            last_fir: None,
        })
    }

    /// Whether something is sent: it has begun, and was not stopped.
    pub(super) fn on_air(&self) -> bool {
        !self.first_packet && !self.stopped
    }

    /// Reads ahead: its own fields first, then what it says next.
    pub(super) fn warm(&self, step: usize) -> u64 {
        match (step, &self.source) {
            (0, _) => u64::from(self.sequence) ^ self.stats.packets() ^ self.interval.packets,
            (_, Source::Audio(audio)) => audio.warm(),
            (_, Source::Video(_)) => 0,
        }
    }

    pub(super) fn mid(&self) -> &str {
        &self.mid
    }

    /// Its place among the layers of its line, from 0 for the smallest picture; 0 without layers.
    pub(super) fn layer(&self) -> u8 {
        self.layer
    }

    /// What a sender report says at `now`, whose wall clock is `ntp`. The timestamp is that of the source's clock: all
    /// streams tell the same time of what was captured at once. None before the first packet.
    pub(super) fn sender_info(&self, now: Instant, ntp: Ntp) -> Option<SenderInfo> {
        let info = self.stats.sender_info(now, ntp)?;
        Some(SenderInfo { rtp_timestamp: self.source.timestamp_at(now), ..info })
    }

    /// Sends what is due.
    pub(super) fn poll(&mut self, sending: &mut Sending) -> Result<(), SrtpError> {
        self.resend(sending)?;
        while !self.stopped && self.send_next(sending)? {}
        Ok(())
    }

    /// Shows nothing for a while, or again something, from a keyframe on.
    pub(super) fn rest(&mut self, rests: bool) {
        if let Source::Video(video) = &mut self.source {
            video.rest(rests);
        }
    }

    /// When there is something to send next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        if self.repair.as_ref().is_some_and(|repair| !repair.wanted.is_empty()) {
            return Some(self.began);
        }
        if self.stopped {
            return None;
        }
        match &self.source {
            Source::Audio(audio) => Some(audio.next_due()),
            Source::Video(video) => video.next_due(),
        }
    }

    fn send_next(&mut self, sending: &mut Sending) -> Result<bool, SrtpError> {
        let mut header = Header {
            mid: self.rid.is_some() || self.began + MID_TIME > sending.now,
            repairs: false,
            payload_type: self.payload_type,
            sequence: self.sequence,
        };
        let lines =
            Lines { mid: &self.mid, rid: self.rid.as_deref(), extensions: &self.extensions };
        let (timestamp, bytes, last) = match &mut self.source {
            Source::Audio(audio) => {
                let Some((timestamp, opus)) = audio.pop(sending.now) else { return Ok(false) };
                let red = self.red.as_mut().and_then(|red| {
                    red.with_copies(self.payload_type, self.sequence, timestamp, &opus.data)
                });
                let pads = sending.pads && self.extensions.capture_time.is_none();
                let marked = pads.then(|| padding::marked(&opus.data, sending.ntp())).flatten();
                let sound = marked.as_deref().unwrap_or(&opus.data);
                let (payload_type, payload) = red.unwrap_or((self.payload_type, sound));
                header.payload_type = payload_type;
                let packet = Packet {
                    marker: self.first_packet,
                    timestamp,
                    level: Some(opus.level_dbov),
                    payload: (payload, &[]),
                };
                send(sending, &mut self.seal, &lines, header, &packet, None)?;
                (timestamp, payload.len(), false)
            }
            Source::Video(video) => {
                let Some(piece) = video.pop(sending.now) else { return Ok(false) };
                let payload = piece.payload(video.clip());
                let timestamp = piece.timestamp;
                let packet = Packet { marker: piece.last, timestamp, level: None, payload };
                let mut datagram = Vec::new();
                let plain = self.repair.as_ref().is_some_and(|repair| repair.rtx.is_none());
                let kept = plain.then_some(&mut datagram);
                send(sending, &mut self.seal, &lines, header, &packet, kept)?;
                if let Some(Repair { history, .. }) = &mut self.repair {
                    if history.len() == HISTORY {
                        history.pop_front();
                    }
                    let sequence = self.sequence;
                    history.push_back(Sent { sequence, piece, datagram, resent: None });
                }
                (timestamp, payload.0.len() + payload.1.len(), piece.last)
            }
        };
        self.first_packet = false;
        self.sequence = self.sequence.wrapping_add(1);
        self.stats.push(timestamp, bytes, sending.now);
        self.interval.packets += 1;
        self.interval.bytes += bytes as u64;
        self.interval.frames += u64::from(last);
        Ok(true)
    }

    /// Someone lost packets of this stream.
    pub(super) fn on_nack(&mut self, lost: impl Iterator<Item = u16>) {
        let Some(Repair { wanted, .. }) = &mut self.repair else { return };
        for sequence in lost {
            if wanted.len() < HISTORY {
                wanted.push_back(sequence);
            }
        }
    }

    fn resend(&mut self, sending: &mut Sending) -> Result<(), SrtpError> {
        let (Some(repair), Source::Video(video)) = (&mut self.repair, &self.source) else {
            return Ok(());
        };
        let lines =
            Lines { mid: &self.mid, rid: self.rid.as_deref(), extensions: &self.extensions };
        while let Some(sequence) = repair.wanted.pop_front() {
            let Some(oldest) = repair.history.front() else { continue };
            let at = usize::from(sequence.wrapping_sub(oldest.sequence));
            let Some(sent) = repair.history.get_mut(at) else { continue };
            if sent.resent.is_some_and(|last| last + RESEND_SPACING > sending.now) {
                continue;
            }
            sent.resent = Some(sending.now);
            self.interval.resent += 1;
            let Some(rtx) = &mut repair.rtx else {
                (sending.sink)(&sent.datagram);
                continue;
            };
            let (front, data) = sent.piece.payload(video.clip());
            let mut head = [0; rtp::rtx::OVERHEAD + HEAD];
            let head = &mut head[..rtp::rtx::OVERHEAD + front.len()];
            head[..2].copy_from_slice(&sent.sequence.to_be_bytes());
            head[2..].copy_from_slice(front);
            let header = Header {
                mid: self.rid.is_some() || self.began + MID_TIME > sending.now,
                repairs: true,
                payload_type: rtx.payload_type,
                sequence: rtx.sequence,
            };
            let packet = Packet {
                marker: sent.piece.last,
                timestamp: sent.piece.timestamp,
                level: None,
                payload: (head, data),
            };
            send(sending, &mut rtx.seal, &lines, header, &packet, None)?;
            rtx.sequence = rtx.sequence.wrapping_add(1);
        }
        Ok(())
    }

    /// Someone cannot decode; `fir` is the number of a full intra request, which is repeated.
    pub(super) fn on_keyframe_request(&mut self, fir: Option<u8>) {
        if fir.is_some() && fir == self.last_fir {
            return;
        }
        self.last_fir = fir.or(self.last_fir);
        self.interval.keyframe_requests += 1;
        if let Source::Video(video) = &mut self.source {
            video.want_keyframe();
        }
    }

    /// A report on this stream came.
    pub(super) fn on_report(&mut self, block: &ReportBlock) {
        let before = self.reported.unwrap_or(self.reported_before);
        let packets = block.highest_sequence.saturating_sub(before.0);
        self.reported = Some((block.highest_sequence, block.cumulative_lost));
        self.red.iter_mut().for_each(|red| red.on_report(packets, block.fraction_lost));
    }

    /// Loss that the reports since the last call tell of, in percent.
    fn take_remote_loss_pct(&mut self) -> Option<f64> {
        let reported = self.reported.take()?;
        let before = std::mem::replace(&mut self.reported_before, reported);
        let expected = reported.0.wrapping_sub(before.0) as i32;
        let lost = (reported.1 - before.1).max(0);
        (expected > 0).then(|| (100.0 * f64::from(lost) / f64::from(expected)).min(100.0))
    }

    /// The row of the interval that ends here.
    pub(super) fn sample(&mut self, track: &str, interval: Duration) -> SentTrack {
        let own = std::mem::take(&mut self.interval);
        let seconds = interval.as_secs_f64().max(1e-3);
        let video = self.kind == Kind::Video;
        SentTrack {
            track: track.to_owned(),
            kind: if video { MediaKind::Video } else { MediaKind::Audio },
            codec: Some(self.codec.as_str().to_owned()),
            packets_sent: own.packets,
            retransmitted_packets_sent: Some(own.resent),
            bitrate_kbps: own.bytes as f64 * 8.0 / seconds / 1000.0,
            remote_loss_pct: self.take_remote_loss_pct(),
            frames_per_second: video.then(|| own.frames as f64 / seconds),
            keyframe_requests: video.then_some(own.keyframe_requests),
            cpu_limited_ratio: None,
            bandwidth_limited_ratio: None,
        }
    }
}

/// What stays the same over a line.
struct Lines<'a> {
    mid: &'a str,
    /// Which layer, on a line with layers.
    rid: Option<&'a str>,
    extensions: &'a Extensions,
}

#[derive(Clone, Copy)]
struct Header {
    mid: bool,
    /// Whether it is a retransmission: that names its layer by another extension (RFC 8852).
    repairs: bool,
    payload_type: u8,
    sequence: u16,
}

/// Writes, seals and hands over one packet, and keeps the datagram where that is asked for.
fn send(
    sending: &mut Sending,
    seal: &mut SealStream,
    line: &Lines,
    header: Header,
    packet: &Packet,
    kept: Option<&mut Vec<u8>>,
) -> Result<(), SrtpError> {
    let transport_sequence = sending.transport_sequence.to_be_bytes();
    let send_time = rtp::header::abs_send_time(sending.clock.unix_at(sending.now));
    // Every packet of sound says when it was said: who hears it tells the delay, opened or not.
    let capture_time = rtp::header::abs_capture_time(sending.ntp());
    let capture_time = packet.level.is_some().then_some(capture_time.as_slice());
    let level = packet
        .level
        .map(|level_dbov| [AudioLevel { voice: level_dbov <= VOICE_DBOV, level_dbov }.to_byte()]);
    let ids = line.extensions;
    let level = level.as_ref().map(|byte| byte.as_slice());
    let mid = header.mid.then_some(line.mid.as_bytes());
    let rid = if header.repairs { ids.repaired_rid } else { ids.rid };
    let candidates: [(Option<u8>, Option<&[u8]>); 6] = [
        (ids.capture_time, capture_time),
        (ids.transport_sequence, Some(&transport_sequence)),
        (ids.abs_send_time, Some(&send_time)),
        (ids.audio_level, level),
        (ids.mid, mid),
        (rid, line.rid.map(str::as_bytes)),
    ];
    let mut extensions: [(u8, &[u8]); 6] = [(0, &[]); 6];
    let mut count = 0;
    for (id, value) in candidates {
        if let (Some(id), Some(value)) = (id, value) {
            extensions[count] = (id, value);
            count += 1;
        }
    }
    let mut buffer = [0; MAX_DATAGRAM];
    let writer = HeaderWriter {
        marker: packet.marker,
        payload_type: header.payload_type,
        sequence: header.sequence,
        timestamp: packet.timestamp,
        ssrc: seal.ssrc(),
        extensions: &extensions[..count],
    };
    let header_len = writer.write(&mut buffer).map_err(|_| SrtpError::BufferTooSmall)?;
    let (first, second) = packet.payload;
    let middle = header_len + first.len();
    let len = middle + second.len();
    let room = buffer.get_mut(header_len..len).ok_or(SrtpError::BufferTooSmall)?;
    let (a, b) = room.split_at_mut(first.len());
    a.copy_from_slice(first);
    b.copy_from_slice(second);
    let sealed = sending.sealer.seal_rtp(seal, &mut buffer, header_len, len)?;
    if ids.transport_sequence.is_some() {
        *sending.transport_sequence = sending.transport_sequence.wrapping_add(1);
    }
    (sending.sink)(&buffer[..sealed]);
    kept.into_iter().for_each(|kept| kept.extend_from_slice(&buffer[..sealed]));
    Ok(())
}
