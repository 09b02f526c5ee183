//! An independent witness: a plain str0m peer with its own SRTP, RTP and RTCP talks to a bot, over
//! a network in virtual time.

use super::*;
use crate::clients::bot::fixtures::{ClipFrame, OpusPacket};
use crate::clients::bot::padding;
use rtp::negotiated::Kind as LineKind;
use std::net::SocketAddr;
use str0m::change::SdpOffer;
use str0m::media::{Frequency, KeyframeRequestKind, MediaData, MediaKind, MediaTime, Mid};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Input, Rtc};
use transport::{IceDtls, OfferLine, Output, Shared, VideoFormat};

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A datagram under way: to the witness or to the bot.
struct Way {
    to_witness: bool,
    data: Vec<u8>,
}

struct Meeting {
    start: Instant,
    now: Instant,
    ice: IceDtls,
    media: BotMedia,
    connected: bool,
    witness: Rtc,
    ways: BTreeMap<(Instant, u64), Way>,
    count: u64,
    /// Of RTP packets, one in so many is lost.
    lose_one_in: Option<u64>,
    random: SplitMix,
    heard: Vec<MediaData>,
    keyframe_requests: usize,
    /// What the witness shows, and whether a keyframe is next.
    played: Arc<Clip>,
    wants_keyframe: bool,
    /// What the witness sends: line, next time, next index.
    playing: Vec<(Mid, MediaKind, Instant, usize)>,
}

impl Meeting {
    fn new() -> Self {
        Self::with(VideoSource::P360, Codec::Vp8)
    }

    /// With a bot that shows this.
    fn with(video_source: VideoSource, codec: Codec) -> Self {
        let start = Instant::now();
        let shared = Shared::new().unwrap();
        let is_h264 = codec == Codec::H264;
        let video = Some(if is_h264 { VideoFormat::H264 } else { VideoFormat::Vp8 });
        let mut ice = IceDtls::client(&shared, video, address(1000), start).unwrap();
        let mut witness = Rtc::builder()
            .clear_codecs()
            .enable_opus(true, false)
            .enable_vp8(!is_h264)
            .enable_h264(is_h264)
            .set_rtcp_report_interval_audio(S)
            .build(start);
        witness.add_local_candidate(Candidate::host(address(2000), "udp").unwrap());
        let line = |kind, send| OfferLine { kind, send, layers: &[] };
        let layers = video_source.rids();
        let lines = [
            line(LineKind::Audio, true),
            OfferLine { layers, ..line(LineKind::Video, true) },
            line(LineKind::Audio, false),
            line(LineKind::Video, false),
        ];
        let offer = ice.offer(&lines, false).unwrap();
        let parsed = SdpOffer::from_sdp_string(&offer.sdp).unwrap();
        let answer = witness.sdp_api().accept_offer(parsed).unwrap().to_sdp_string();
        let negotiated = ice.accept_answer(&answer).unwrap();
        let clip = Fixtures::embedded().unwrap().clip_in(video_source, codec);
        let played = if is_h264 { clip.clone().unwrap() } else { super::clip() };
        let mut media = BotMedia::new(Config { clip, ..config(40, start) });
        let tracks = [(offer.mids[0].clone(), "TA".into()), (offer.mids[1].clone(), "TV".into())];
        media.agreed(&negotiated, &tracks, start);
        media.map_slots(
            &[change(&offer.mids[2], Some("A"), None), change(&offer.mids[3], Some("V"), None)],
            start,
        );
        let playing = vec![
            (Mid::from(offer.mids[2].as_str()), MediaKind::Audio, start, 0),
            (Mid::from(offer.mids[3].as_str()), MediaKind::Video, start, 0),
        ];
        Self {
            start,
            now: start,
            ice,
            media,
            connected: false,
            witness,
            ways: BTreeMap::new(),
            count: 0,
            lose_one_in: None,
            random: SplitMix(1),
            heard: Vec::new(),
            keyframe_requests: 0,
            played,
            wants_keyframe: is_h264,
            playing,
        }
    }

    fn send(&mut self, to_witness: bool, data: Vec<u8>) {
        let rtp = matches!(data[0], 128..=191) && !rtp::header::is_rtcp(data[1]);
        let lost = self.lose_one_in.filter(|_| rtp).is_some_and(|n| self.random.below(n) == 0);
        self.count += 1;
        if !lost {
            self.ways.insert((self.now + 10 * MS, self.count), Way { to_witness, data });
        }
    }

    /// Both sides do what they want to; the earliest time that one of them wants to be called.
    fn drain(&mut self) -> Instant {
        let mut next = self.now + S;
        loop {
            match self.ice.poll().unwrap() {
                Output::Transmit { data, .. } => self.send(true, data),
                Output::Event(transport::Event::Connected { keys, .. }) => {
                    self.media.install(&keys, self.now);
                    self.connected = true;
                }
                Output::Event(other) => panic!("unexpected {other:?}"),
                Output::Wait(at) => {
                    next = next.min(at);
                    break;
                }
            }
        }
        let mut out = Vec::new();
        self.media.poll(self.now, &mut |data| out.push(data.to_vec()));
        out.into_iter().for_each(|data| self.send(true, data));
        loop {
            match self.witness.poll_output().unwrap() {
                str0m::Output::Transmit(transmit) => {
                    let data: Vec<u8> = transmit.contents.into();
                    self.send(false, data);
                }
                str0m::Output::Event(str0m::Event::MediaData(data)) => self.heard.push(data),
                str0m::Output::Event(str0m::Event::KeyframeRequest(request)) => {
                    self.keyframe_requests += 1;
                    let line = self.playing.iter_mut().find(|line| line.0 == request.mid).unwrap();
                    line.3 = self.played.keyframe_from(line.3 % self.played.frames.len());
                    self.wants_keyframe = true;
                }
                str0m::Output::Event(_) => {}
                str0m::Output::Timeout(at) => {
                    next = next.min(at);
                    break;
                }
            }
        }
        next.min(self.media.next_deadline().unwrap_or(next))
    }

    /// The witness sends speech and video.
    fn play(&mut self) {
        let (voice, clip) = (voice(), self.played.clone());
        for at in 0..self.playing.len() {
            let (mid, kind, due, index) = self.playing[at];
            if due > self.now {
                continue;
            }
            let (data, frequency, interval) = match kind {
                MediaKind::Audio => {
                    let OpusPacket { data, .. } = &voice.packets[index % voice.packets.len()];
                    (data.clone(), Frequency::FORTY_EIGHT_KHZ, 20 * MS)
                }
                MediaKind::Video => {
                    let number = match std::mem::take(&mut self.wants_keyframe) {
                        true if clip.codec == Codec::H264 => clip.frames.len(),
                        _ => index % clip.frames.len(),
                    };
                    let interval = S * clip.rate.1 / clip.rate.0;
                    (whole(&clip, number), Frequency::NINETY_KHZ, interval)
                }
            };
            let since = due.duration_since(self.start).as_micros() as u64;
            let time = MediaTime::from_micros(since).rebase(frequency);
            let writer = self.witness.writer(mid).unwrap();
            let payload_type = writer.payload_params().next().unwrap().pt();
            writer.write(payload_type, self.now, time, data).unwrap();
            self.playing[at].2 = due + interval;
            self.playing[at].3 = index + 1;
        }
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            let mut next = self.drain().min(end);
            if self.connected {
                next = self.playing.iter().map(|line| line.2).min().unwrap().min(next);
            } else {
                self.playing.iter_mut().for_each(|line| line.2 = self.now);
            }
            if let Some(((at, _), _)) = self.ways.first_key_value() {
                next = next.min(*at);
            }
            self.now = next.max(self.now + Duration::from_micros(50)).min(end);
            while let Some(entry) = self.ways.first_entry()
                && entry.key().0 <= self.now
            {
                let Way { to_witness, data } = entry.remove();
                let (from, to) = (address(1000), address(2000));
                if to_witness {
                    let receive = Receive::new(Protocol::Udp, from, to, &data).unwrap();
                    self.witness.handle_input(Input::Receive(self.now, receive)).unwrap();
                } else if matches!(data[0], 128..=191) {
                    self.media.handle_datagram(self.now, &data).unwrap();
                } else {
                    self.ice.handle_datagram(self.now, to, from, &data).unwrap();
                }
            }
            self.ice.handle_timeout(self.now).unwrap();
            self.witness.handle_input(Input::Timeout(self.now)).unwrap();
            if self.connected {
                self.play();
            }
        }
    }

    /// What the witness heard of one kind since the last call.
    fn take_heard(&mut self, kind: Kind) -> Vec<MediaData> {
        let audio = |data: &MediaData| data.params.spec().codec == str0m::format::Codec::Opus;
        let (of, rest) = std::mem::take(&mut self.heard)
            .into_iter()
            .partition(|data| audio(data) == (kind == Kind::Audio));
        self.heard = rest;
        of
    }
}

#[test]
fn a_plain_peer_and_a_bot_understand_each_other() {
    let mut meeting = Meeting::new();
    meeting.run(6 * S);
    assert!(meeting.connected);
    // What the witness received is the fixtures, whole and in order.
    let audio = meeting.take_heard(Kind::Audio);
    assert!(audio.len() > 250, "{} packets of speech", audio.len());
    let voice = voice();
    // It asked for no abs-capture-time, so each packet says in its padding when it was said.
    let said = |data: &MediaData| {
        let ntp = padding::mark_in(&data.data)?;
        voice.packets.iter().find(|p| padding::marked(&p.data, ntp).as_deref() == Some(&*data.data))
    };
    assert!(audio.iter().all(|data| said(data).is_some()));
    let levels = audio.iter().filter(|data| data.ext_vals.audio_level.is_some()).count();
    assert_eq!(levels, audio.len());
    let video = meeting.take_heard(Kind::Video);
    assert!(video.len() > 95, "{} frames", video.len());
    let clip = clip();
    let first = clip.frames.iter().position(|frame| *frame.data == *video[0].data).unwrap();
    for (nth, frame) in video.iter().enumerate() {
        assert!(frame.contiguous, "frame {nth}");
        assert!(*frame.data == clip.frames[(first + nth) % clip.frames.len()].data, "frame {nth}");
    }
    assert!(video.last().unwrap().last_sender_info.is_some(), "no sender report was taken");
    // And the other way round.
    let sample = meeting.media.sample(meeting.now);
    assert!(sample.join_to_first_audio_ms.is_some() && sample.join_to_first_frame_ms.is_some());
    let rtt = sample.rtt_ms.unwrap();
    assert!((20.0..=21.0).contains(&rtt), "{rtt}");
    meeting.run(3 * S);
    let sample = meeting.media.sample(meeting.now);
    let (audio, video) = (row(&sample.received, "A"), row(&sample.received, "V"));
    assert_eq!((audio.packets_lost, video.packets_lost), (0, 0));
    assert!((149..=151).contains(&audio.packets_received), "{}", audio.packets_received);
    assert!((video.frames_per_second.unwrap() - 20.0).abs() < 0.5);
    assert_eq!((video.freezes, video.frame_width), (Some(0), Some(640)));
    assert_eq!(sample.sent[0].remote_loss_pct, Some(0.0));
    assert!(meeting.media.counters().drops.is_empty());

    // Keyframes by request, both ways.
    let before = meeting.media.counters().keyframes_sent;
    let line = meeting.take_heard(Kind::Video)[0].mid;
    let mut writer = meeting.witness.writer(line).unwrap();
    writer.request_keyframe(None, KeyframeRequestKind::Pli).unwrap();
    meeting.run(200 * MS);
    assert_eq!(meeting.media.counters().keyframes_sent, before + 1);
    let sent = &meeting.media.sample(meeting.now).sent[1];
    assert_eq!(sent.keyframe_requests, Some(1));
    let slot = meeting.playing[1].0.to_string();
    meeting.media.map_slots(&[change(&slot, Some("new"), None)], meeting.now);
    meeting.run(S);
    assert!(meeting.keyframe_requests >= 1);
    let sample = meeting.media.sample(meeting.now);
    assert!(row(&sample.received, "new").frames_per_second.unwrap() > 10.0);
}

#[test]
fn a_plain_peer_sees_the_layers_of_a_bot_each_for_itself() {
    let mut meeting = Meeting::with(VideoSource::Simulcast, Codec::Vp8);
    meeting.run(5 * S);
    let video = meeting.take_heard(Kind::Video);
    let (rids, clip) = (VideoSource::Simulcast.rids(), layered());
    for (rid, clip) in rids.iter().zip(clip.layers()) {
        let frames: Vec<_> =
            video.iter().filter(|data| data.rid.is_some_and(|of| *of == **rid)).collect();
        let rate = clip.rate.0 / clip.rate.1;
        assert!(frames.len() as u32 > 4 * rate, "{} frames of {rid}", frames.len());
        let first = clip.frames.iter().position(|frame| *frame.data == *frames[0].data).unwrap();
        for (nth, frame) in frames.iter().enumerate() {
            assert!(frame.contiguous, "{rid}, frame {nth}");
            let sent = &clip.frames[(first + nth) % clip.frames.len()].data;
            assert!(*frame.data == **sent, "{rid}, frame {nth}");
        }
    }
    // It asks for a keyframe of one layer.
    let before = meeting.media.counters().keyframes_sent;
    let mut writer = meeting.witness.writer(video[0].mid).unwrap();
    writer.request_keyframe(Some(rids[1].into()), KeyframeRequestKind::Pli).unwrap();
    meeting.run(100 * MS);
    assert_eq!(meeting.media.counters().keyframes_sent, before + 1);
    let is = |data: &MediaData| vp8_size(&data.data).is_some();
    let keyframes: Vec<_> = meeting.take_heard(Kind::Video).into_iter().filter(is).collect();
    assert_eq!(keyframes.len(), 1);
    assert_eq!(vp8_size(&keyframes[0].data), Some((640, 360)));
    // Losses of each are repaired.
    meeting.lose_one_in = Some(40);
    meeting.run(10 * S);
    let video = meeting.take_heard(Kind::Video);
    for rid in rids {
        let frames = video.iter().filter(|data| data.rid.is_some_and(|of| *of == **rid)).count();
        assert!(frames > 190, "{frames} of 200 or more frames of {rid}");
    }
    assert!(meeting.media.sample(meeting.now).sent[1].retransmitted_packets_sent > Some(20));
}

fn vp8_size(frame: &[u8]) -> Option<(u16, u16)> {
    rtp::vp8::frame_header(frame).unwrap().size
}

/// A frame of a clip as encoders give it: units of H.264 with start codes (Annex B of ITU-T H.264).
fn whole(clip: &Clip, number: usize) -> Vec<u8> {
    let ClipFrame { data, keyframe } = clip.frame(number);
    if clip.codec != Codec::H264 {
        return data.clone();
    }
    let mut out = Vec::new();
    let mut sets = &clip.parameter_sets.data[1..];
    while let (true, Some((len, rest))) = (*keyframe, sets.split_first_chunk()) {
        let (unit, rest) = rest.split_at(usize::from(u16::from_be_bytes(*len)));
        out.extend([&[0, 0, 0, 1], unit].concat());
        sets = rest;
    }
    [out, vec![0, 0, 0, 1], data.clone()].concat()
}

#[test]
fn a_plain_peer_and_a_bot_understand_each_other_in_h264() {
    let mut meeting = Meeting::with(VideoSource::P720, Codec::H264);
    let clip = meeting.played.clone();
    meeting.run(6 * S);
    let video = meeting.take_heard(Kind::Video);
    assert!(video.len() > 150, "{} frames", video.len());
    assert!(video.iter().skip(1).all(|frame| frame.contiguous));
    let ends = |data: &[u8], whole: &[u8], from: usize| {
        data.len() == whole.len() && data.ends_with(&whole[from..])
    };
    let mut first = (0..clip.keyframes.len()).map(|nth| clip.frames.len() + nth);
    let found = first.any(|at| ends(&video[0].data, &whole(&clip, at), 60));
    assert!(found, "it begins with a keyframe and its parameter sets");
    let at = |frame: &MediaData| {
        (0..clip.frames.len()).filter(|at| ends(&frame.data, &whole(&clip, *at), 8)).count()
    };
    assert!(video[1..20].iter().all(|frame| at(frame) > 0), "frames come whole");
    // The headers count: 1, 2, 3 and so on since the keyframe, behind a start code and what is the same in all.
    let number = |frame: &MediaData| (frame.data[5] & 1) << 7 | frame.data[6] >> 1;
    assert!((1..150).all(|nth| number(&video[nth]) == nth as u8), "frames have their numbers");
    // The other way round, and with losses both ways.
    meeting.lose_one_in = Some(40);
    meeting.run(10 * S);
    let sample = meeting.media.sample(meeting.now);
    let row = row(&sample.received, "V");
    assert!(row.frames_per_second.unwrap() > 28.0, "{:?}", row.frames_per_second);
    assert_eq!((row.frame_width, row.frame_height), (Some(1280), Some(720)));
    assert!(meeting.media.counters().received_rtx > 20);
    let frames = meeting.take_heard(Kind::Video).len();
    assert!(frames > 285, "{frames} of 300 frames");
    assert_eq!(meeting.media.counters().keyframes_sent, 1);
}

#[test]
fn a_plain_peer_and_a_bot_repair_each_others_losses() {
    let mut meeting = Meeting::new();
    meeting.run(2 * S);
    meeting.media.sample(meeting.now);
    meeting.take_heard(Kind::Video);
    meeting.lose_one_in = Some(40);
    meeting.run(20 * S);
    let frames = meeting.take_heard(Kind::Video);
    assert!(frames.len() > 385, "{} of 400 frames", frames.len());
    let sample = meeting.media.sample(meeting.now);
    let video = row(&sample.received, "V");
    let loss_pct = video.loss_pct.unwrap();
    assert!((1.0..=4.5).contains(&loss_pct), "{loss_pct}");
    assert!(video.frames_per_second.unwrap() > 19.0, "{:?}", video.frames_per_second);
    let told = sample.sent[1].remote_loss_pct.unwrap();
    assert!(sample.sent[1].retransmitted_packets_sent.unwrap() > 20);
    // str0m counts what was repaired as received.
    assert!(told < 1.0, "{told}");
    assert!(meeting.media.counters().received_rtx > 20);
}
