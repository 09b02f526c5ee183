//! Bots on real sockets of the loopback, against a small server made of the same parts.

use super::*;
use crate::clients::bot::fixtures::Fixtures;
use crate::clients::bot::media::{BotMedia, Clock, Config, Opening};
use crate::clients::bot::words::{AudioSource, Lacks, Media, VideoSource};
use std::net::UdpSocket;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use transport::{IceDtls, Output, Shared, VideoFormat};
use wire::room::{AnsweredTrack, OfferedLayer, VideoCodec};

/// A server for one bot: it answers, plays speech and video into the first slots, and keeps what
/// it was sent.
struct Server {
    offers: Sender<(String, Sender<String>)>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<BotMedia>>,
}

impl Server {
    fn start() -> Self {
        let (offers, incoming) = channel::<(String, Sender<String>)>();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            let local = socket.local_addr().unwrap();
            let shared = Shared::new().unwrap();
            let video = Some(VideoFormat::Vp8);
            let mut ice = IceDtls::server(&shared, video, &[local], Instant::now()).unwrap();
            let mut media = played();
            let mut remote = None;
            while !stopped.load(Ordering::Acquire) {
                if let Ok((offer, reply)) = incoming.try_recv() {
                    let (answer, negotiated) = ice.accept_offer(&offer).unwrap();
                    media.agreed(&negotiated, &[], Instant::now());
                    reply.send(answer).unwrap();
                }
                let mut buffer = [0; 2000];
                if let Ok((len, from)) = socket.recv_from(&mut buffer) {
                    let data = &buffer[..len];
                    if matches!(data[0], 128..=191) {
                        let _ = media.handle_datagram(Instant::now(), data);
                    } else {
                        ice.handle_datagram(Instant::now(), from, local, data).unwrap();
                    }
                }
                ice.handle_timeout(Instant::now()).unwrap();
                loop {
                    match ice.poll().unwrap() {
                        Output::Transmit { destination, data, .. } => {
                            socket.send_to(&data, destination.socket).unwrap();
                        }
                        Output::Event(transport::Event::Connected {
                            keys,
                            remote: address,
                            ..
                        }) => {
                            media.install(&keys, Instant::now());
                            remote = Some(address);
                        }
                        Output::Event(_) => {}
                        Output::Wait(_) => break,
                    }
                }
                if let Some(remote) = remote {
                    media.poll(Instant::now(), &mut |data| {
                        let _ = socket.send_to(data, remote.socket);
                    });
                }
            }
            media
        });
        Self { offers, stop, thread: Some(thread) }
    }

    fn negotiate(&self, offer: &BotOffer) -> Answer {
        let (reply, answer) = channel();
        self.offers.send((offer.sdp.clone(), reply)).unwrap();
        let id = |mid: &str| format!("track-{mid}");
        let tracks = offer
            .tracks
            .iter()
            .map(|track| AnsweredTrack { mid: track.mid.clone(), id: id(&track.mid) })
            .collect();
        Answer { sdp: answer.recv().unwrap(), tracks }
    }

    /// Ends the server; what it received.
    fn end(mut self) -> BotMedia {
        self.stop.store(true, Ordering::Release);
        self.thread.take().unwrap().join().unwrap()
    }
}

fn played() -> BotMedia {
    let fixtures = Fixtures::embedded().unwrap();
    let now = Instant::now();
    BotMedia::new(Config {
        seed: 7,
        cname: "server".into(),
        voice: Some(fixtures.voice(3)),
        clip: fixtures.clip(VideoSource::P360),
        joined: now,
        clock: Clock { origin: now, unix: Duration::from_secs(1_700_000_000) },
        opening: Opening::All,
    })
}

fn slot_change(slot: &str, track: &str) -> SlotChange {
    SlotChange {
        slot: slot.into(),
        participant: Some("someone".into()),
        track: Some(track.into()),
        mix: false,
        paused: None,
        rtp_timestamp: None,
    }
}

fn spec(index: u32) -> BotSpec {
    BotSpec {
        name: format!("bot-{index}"),
        index,
        media: Media { audio: AudioSource::Speech, video: VideoSource::P360 },
        video_codec: VideoCodec::Vp8,
        slots: SlotPool { audio: 2, video: 2 },
        ..BotSpec::default()
    }
}

/// The mids of an offer's slots of one kind, in order.
fn slots_of(offer: &BotOffer, kind: &str) -> Vec<String> {
    let mut slots = Vec::new();
    for section in offer.sdp.split("\r\nm=").skip(1) {
        let mid = section.lines().find_map(|line| line.strip_prefix("a=mid:"));
        if section.starts_with(kind) && section.contains("a=recvonly") {
            slots.push(mid.unwrap().to_owned());
        }
    }
    slots
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Samples until one is as wanted.
async fn until(handle: &Handle, wanted: impl Fn(&QualitySample) -> bool) -> QualitySample {
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let sample = handle.sample().await.unwrap();
        if wanted(&sample) {
            return sample;
        }
    }
    panic!("no such sample in 10 s: {:?}", handle.sample().await);
}

#[test]
fn bots_connect_send_receive_grow_and_leave() {
    runtime().block_on(async {
        let options = Options { threads: 2, ..Options::default() };
        let driver = Driver::start(&options).unwrap();
        let mut bots = Vec::new();
        for index in 1..=3 {
            let server = Server::start();
            let handle = driver.add(spec(index)).unwrap();
            let offer = handle.offer().await.unwrap();
            assert_eq!(offer.tracks.len(), 2);
            let (audio, video) = (slots_of(&offer, "audio"), slots_of(&offer, "video"));
            assert_eq!((audio.len(), video.len()), (2, 2));
            handle.answer(server.negotiate(&offer)).await.unwrap();
            handle.slots(vec![slot_change(&audio[0], "A"), slot_change(&video[0], "V")]);
            handle.connected().await.unwrap();
            handle.connected().await.unwrap();
            bots.push((handle, server, offer));
        }
        for (handle, server, offer) in &bots {
            let sample = until(handle, |sample| {
                let row = |track| sample.received.iter().find(|row| row.track == track);
                let shown = row("V").and_then(|row| row.frames_per_second);
                shown.is_some_and(|fps| fps > 15.0)
                    && row("A").is_some_and(|row| row.packets_received > 3)
                    && sample.sent.len() == 2
                    && sample.sent.iter().all(|sent| sent.packets_sent > 0)
            })
            .await;
            assert_eq!(sample.sent[0].track, format!("track-{}", offer.tracks[0].mid));
            assert!(sample.received.iter().all(|row| row.packets_lost == 0));
            until(handle, |sample| sample.rtt_ms.is_some_and(|rtt| rtt < 100.0)).await;
            // More slots, while media runs.
            handle.grow(4, 3);
            let offer = handle.offer().await.unwrap();
            assert_eq!(slots_of(&offer, "audio").len(), 4);
            assert_eq!(slots_of(&offer, "video").len(), 3);
            assert_eq!(offer.tracks.len(), 2);
            handle.answer(server.negotiate(&offer)).await.unwrap();
            assert!(handle.offer().await.is_err(), "there is nothing new to offer");
            handle.command(BotCommand::StopVideo);
            until(handle, |sample| sample.sent[1].packets_sent == 0).await;
        }
        let mut received = 0;
        for (handle, server, _) in bots {
            handle.command(BotCommand::Leave);
            let error = handle.sample().await.unwrap_err().to_string();
            assert!(error.contains("left"), "{error}");
            received += server.end().counters().received;
        }
        assert!(received > 300, "{received}");
        // The health is published within a quarter of a second.
        let mut health = driver.health();
        for _ in 0..50 {
            if health.sent > received {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            health = driver.health();
        }
        assert!(health.sent > received && health.received > 300, "{health:?}");
        assert!(health.timer_lag_us.len() > 100 && health.timer_lag_ms_p99().is_some());
        assert_eq!(health.drops.get("seal_error"), None);
        assert_eq!(health.drops.get("srtp_refused"), None);
    });
}

#[test]
fn a_bot_offers_layers_and_sends_those_that_are_wanted() {
    runtime().block_on(async {
        let driver = Driver::start(&Options::default()).unwrap();
        let server = Server::start();
        let media = Media { audio: AudioSource::Speech, video: VideoSource::Simulcast };
        let handle = driver.add(BotSpec { media, ..spec(1) }).unwrap();
        let offer = handle.offer().await.unwrap();
        assert!(offer.sdp.contains("a=simulcast:send q;h;f\r\n"), "{}", offer.sdp);
        let layer = |rid: &str, width, height| OfferedLayer { rid: rid.into(), width, height };
        let layers = [layer("q", 320, 180), layer("h", 640, 360), layer("f", 848, 480)];
        assert_eq!(
            (&offer.tracks[0].layers[..], &offer.tracks[1].layers[..]),
            (&[][..], &layers[..])
        );
        let answer = server.negotiate(&offer);
        let track = answer.tracks[1].id.clone();
        handle.answer(answer).await.unwrap();
        handle.connected().await.unwrap();
        handle.sample().await.unwrap();
        until(&handle, |sample| sample.sent[1].bitrate_kbps > 1200.0).await;
        handle.layers(track.clone(), 0);
        until(&handle, |sample| (1.0..300.0).contains(&sample.sent[1].bitrate_kbps)).await;
        handle.layers(track, 2);
        until(&handle, |sample| sample.sent[1].bitrate_kbps > 1200.0).await;
        assert_eq!(driver.health().drops.get("seal_error"), None);
        server.end();
    });
}

#[test]
fn a_bot_speaks_and_hears_the_mix_on_one_line() {
    runtime().block_on(async {
        let driver = Driver::start(&Options::default()).unwrap();
        let server = Server::start();
        let media = |audio| Media { audio, video: VideoSource::None };
        let slots = SlotPool { audio: 1, video: 0 };
        let one_line = |audio| BotSpec { media: media(audio), slots, one_line: true, ..spec(1) };
        let handle = driver.add(one_line(AudioSource::Speech)).unwrap();
        let offer = handle.offer().await.unwrap();
        let lines = |sdp: &str| sdp.matches("m=audio").count();
        assert_eq!((lines(&offer.sdp), slots_of(&offer, "audio").len()), (1, 0), "{}", offer.sdp);
        assert!(offer.sdp.contains("a=sendrecv"), "{}", offer.sdp);
        let slot = offer.tracks[0].mid.clone();
        handle.answer(server.negotiate(&offer)).await.unwrap();
        handle.slots(vec![SlotChange {
            slot,
            participant: None,
            track: None,
            mix: true,
            paused: None,
            rtp_timestamp: None,
        }]);
        handle.connected().await.unwrap();
        until(&handle, |sample| {
            let mix = sample.received.iter().find(|row| row.track == crate::record::MIX);
            mix.is_some_and(|row| row.packets_received > 3) && sample.sent[0].packets_sent > 3
        })
        .await;
        assert!(server.end().counters().received > 3);
        // Who says nothing takes the mix alone.
        let listener = driver.add(one_line(AudioSource::None)).unwrap();
        assert_eq!(slots_of(&listener.offer().await.unwrap(), "audio").len(), 1);
    });
}

#[test]
fn a_join_that_fails_tells_its_cause() {
    runtime().block_on(async {
        let connect_timeout = Duration::from_millis(300);
        let driver = Driver::start(&Options { connect_timeout, ..Options::default() }).unwrap();
        // Nobody at the address of the answer.
        let server = Server::start();
        let handle = driver.add(spec(1)).unwrap();
        let mut answer = server.negotiate(&handle.offer().await.unwrap());
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        answer.sdp = answer
            .sdp
            .lines()
            .map(|line| match line.strip_prefix("a=candidate:") {
                Some(candidate) => {
                    let mut fields: Vec<String> = candidate.split(' ').map(str::to_owned).collect();
                    fields[5] = port.to_string();
                    format!("a=candidate:{}\r\n", fields.join(" "))
                }
                None => format!("{line}\r\n"),
            })
            .collect();
        handle.answer(answer).await.unwrap();
        let error = handle.connected().await.unwrap_err().to_string();
        assert!(error.contains(&format!("127.0.0.1:{port}")), "{error}");
        assert!(handle.sample().await.unwrap_err().to_string().contains("nothing came back"));
        assert!(handle.offer().await.is_err());
        server.end();
        // An answer that is none, and one without an offer.
        let handle = driver.add(spec(2)).unwrap();
        handle.offer().await.unwrap();
        let nonsense = Answer { sdp: "nonsense".into(), tracks: Vec::new() };
        assert!(handle.answer(nonsense.clone()).await.is_err());
        assert!(handle.answer(nonsense).await.is_err());
        // What bots cannot show.
        let refused = driver.add(BotSpec { video_codec: VideoCodec::H264, ..spec(3) });
        let refused_too = driver.add(BotSpec { video_codec: VideoCodec::Av1, ..spec(3) });
        for refused in [refused, refused_too] {
            assert!(refused.is_err_and(|error| error.to_string().contains("native bots show VP8")));
        }
        // A driver that ended answers with errors, and does not hang.
        drop(driver);
        let error = handle.sample().await.unwrap_err().to_string();
        assert!(error.contains("thread has ended"), "{error}");
    });
}

#[test]
fn bots_without_red_do_not_offer_it() {
    for red in [true, false] {
        let options = Options { red, ..Options::default() };
        let offer = runtime().block_on(async {
            let driver = Driver::start(&options).unwrap();
            driver.add(spec(1)).unwrap().offer().await.unwrap()
        });
        assert_eq!(offer.sdp.contains(" red/48000/2"), red);
    }
}

#[test]
fn what_a_bot_lacks_is_not_in_its_offer() {
    let sdp = |lacks: Lacks| {
        runtime().block_on(async {
            let driver = Driver::start(&Options::default()).unwrap();
            let slots = SlotPool { audio: if lacks.sound { 0 } else { 2 }, video: 2 };
            let mut media = spec(1).media;
            if lacks.sound {
                media.audio = AudioSource::None;
            }
            let bot = driver.add(BotSpec { lacks, slots, media, ..spec(1) }).unwrap();
            bot.offer().await.unwrap().sdp
        })
    };
    let of = |transport| sdp(Lacks { transport, sound: false });
    let count = |sdp: &str, what: &str| sdp.matches(what).count();
    let (whole, none) = (sdp(Lacks::default()), transport::Lacks::default());
    for (lacks, word) in [
        (transport::Lacks { levels: true, ..none }, "ssrc-audio-level"),
        (transport::Lacks { rtx: true, ..none }, " rtx/90000"),
        (transport::Lacks { red: true, ..none }, " red/48000/2"),
        (transport::Lacks { reduced_size: true, ..none }, "a=rtcp-rsize"),
        (transport::Lacks { feedback: true, ..none }, " transport-cc"),
    ] {
        assert!(count(&whole, word) > 0 && count(&of(lacks), word) == 0, "{word}");
    }
    // Three lines of sound, as many of pictures.
    let sound = of(transport::Lacks { feedback_on_sound: true, ..none });
    assert_eq!((count(&whole, " transport-cc"), count(&sound, " transport-cc")), (6, 3));
    let silent = sdp(Lacks { sound: true, ..Lacks::default() });
    assert_eq!((count(&silent, "m=audio"), count(&silent, "m=video")), (0, 3));
}
