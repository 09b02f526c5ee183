//! Bots in virtual time: what they send, looked at by plain SRTP and RTCP, and what they make of
//! streams that a seeded network spoils.

use super::fixtures::{Clip, Fixtures, Voice};
use super::hearing::judge;
use super::media::{BotMedia, Clock, Config, Dropped, MIX, Opening};
use super::tones::{OnAir, Tone, TonePlan, ToneRole, ToneVoice};
use crate::base::SplitMix;
use crate::clients::bot::words::VideoSource;
use crate::record::MixWindows;
use rtp::RtpHeader;
use rtp::negotiated::{Codec, Kind};
use rtp::rtcp::{self, Packet};
use rtp::srtp::{Opener, Sealer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use transport::{Fixed, FixedPeer};
use wire::event::{PauseReason, SlotChange};
use wire::quality::ReceivedTrack;

mod layers;
mod receiving;
mod sending;
mod witness;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn fixed(seed: u64) -> Fixed {
    Fixed {
        resends: true,
        red: false,
        red_first: false,
        feedback: true,
        lacks: transport::Lacks::default(),
        seed,
        video: Codec::Vp8,
        send_audio: true,
        send_video: true,
        layers: 1,
        audio_slots: 2,
        video_slots: 2,
    }
}

fn voice() -> Arc<Voice> {
    Fixtures::embedded().unwrap().voice(0)
}

fn clip() -> Arc<Clip> {
    Fixtures::embedded().unwrap().clip(VideoSource::P360).unwrap()
}

/// What is shown in layers, where a line has some.
fn layered() -> Arc<Clip> {
    Fixtures::embedded().unwrap().clip(VideoSource::Simulcast).unwrap()
}

fn unix() -> Duration {
    Duration::from_millis(1_700_000_000_123)
}

fn bot(seed: u64, now: Instant) -> BotMedia {
    BotMedia::new(config(seed, now))
}

fn config(seed: u64, now: Instant) -> Config {
    Config {
        seed,
        cname: format!("bot-{seed}"),
        voice: Some(voice()),
        clip: Some(clip()),
        joined: now,
        clock: Clock { origin: now, unix: unix() },
        opening: Opening::All,
    }
}

/// What bot 0, the client, calls its tracks.
fn tracks() -> [(String, String); 2] {
    [("a".into(), "TA".into()), ("v".into(), "TV".into())]
}

fn change(slot: &str, track: Option<&str>, rtp_timestamp: Option<u32>) -> SlotChange {
    SlotChange {
        slot: slot.into(),
        participant: track.map(|track| format!("of-{track}")),
        track: track.map(Into::into),
        mix: false,
        paused: None,
        rtp_timestamp,
    }
}

/// A datagram under way.
struct Flight {
    to: usize,
    data: Vec<u8>,
}

/// Decides about a datagram (to whom, its bytes): true where it is lost.
type Fate = Box<dyn FnMut(usize, &[u8]) -> bool>;

/// Two bots with a network between them; the second plays the server.
struct World {
    start: Instant,
    now: Instant,
    bots: [BotMedia; 2],
    peers: (FixedPeer, FixedPeer),
    delay: Duration,
    fate: Fate,
    flights: BTreeMap<(Instant, u64), Flight>,
    count: u64,
    /// Everything that was sent: when, by whom, what.
    sent: Vec<(Instant, usize, Vec<u8>)>,
}

impl World {
    fn new(seed: u64) -> Self {
        Self::with(seed, |_| {})
    }

    fn with(seed: u64, change: impl Fn(&mut FixedPeer)) -> Self {
        Self::prepared(seed, change, |_, _| {})
    }

    /// With bots that are `prepare`d before they begin.
    fn prepared(
        seed: u64,
        change: impl Fn(&mut FixedPeer),
        prepare: impl FnOnce(&mut [BotMedia; 2], Instant),
    ) -> Self {
        Self::of(fixed(seed), change, prepare)
    }

    /// The same on lines of another kind.
    fn of(
        fixed: Fixed,
        change: impl Fn(&mut FixedPeer),
        prepare: impl FnOnce(&mut [BotMedia; 2], Instant),
    ) -> Self {
        let (start, seed) = (Instant::now(), fixed.seed);
        let (mut server, mut client) = fixed.pair();
        change(&mut server);
        change(&mut client);
        let mut bots = [bot(seed, start), bot(seed + 1000, start)];
        prepare(&mut bots, start);
        bots[0].agreed(&client.negotiated, &tracks(), start);
        bots[0].install(&client.keys, start);
        bots[1].agreed(&server.negotiated, &[], start);
        bots[1].install(&server.keys, start);
        Self {
            start,
            now: start,
            bots,
            peers: (server, client),
            delay: 10 * MS,
            fate: Box::new(|_, _| false),
            flights: BTreeMap::new(),
            count: 0,
            sent: Vec::new(),
        }
    }

    /// The SSRC that the server sends on a slot.
    fn slot_ssrc(&self, mid: &str) -> u32 {
        self.peers.1.negotiated.line(mid).unwrap().remote.unwrap().ssrc
    }

    /// Puts what is in `a0` and `v0` onto the map.
    fn map(&mut self) {
        let changes = [change("a0", Some("A"), None), change("v0", Some("V"), None)];
        self.bots[0].map_slots(&changes, self.now);
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            let due = self.bots.iter().filter_map(BotMedia::next_deadline).min();
            let flight = self.flights.first_key_value().map(|((at, _), _)| *at);
            let next = due.into_iter().chain(flight).chain([end]).min().unwrap();
            // Time moves on even if a bot wants to be called at once.
            self.now = next.max(self.now).min(end);
            while let Some(entry) = self.flights.first_entry()
                && entry.key().0 <= self.now
            {
                let Flight { to, data } = entry.remove();
                self.bots[to].handle_datagram(self.now, &data).unwrap();
            }
            for from in 0..2 {
                let to = 1 - from;
                let (now, at) = (self.now, self.now + self.delay);
                let (flights, count, sent, fate) =
                    (&mut self.flights, &mut self.count, &mut self.sent, &mut self.fate);
                self.bots[from].poll(now, &mut |data| {
                    *count += 1;
                    sent.push((now, from, data.to_vec()));
                    if !fate(to, data) {
                        flights.insert((at, *count), Flight { to, data: data.to_vec() });
                    }
                });
            }
        }
    }

    /// What a bot sent, opened by plain SRTP.
    fn opened(&self, from: usize) -> Opened {
        let keys = if from == 0 { &self.peers.1.keys } else { &self.peers.0.keys };
        let mut opener = Opener::new(&keys.local);
        let mut opened = Opened::default();
        for (at, _, data) in self.sent.iter().filter(|(_, by, _)| *by == from) {
            let mut out = vec![0; 2000];
            if rtp::header::is_rtcp(data[1]) {
                let len = opener.open_rtcp(data, &mut out).unwrap();
                out.truncate(len);
                opened.rtcp.push((*at, out));
            } else {
                let packet = opener.open_rtp(data, &mut out).unwrap();
                out.truncate(packet.len);
                opened.rtp.push((*at, packet.header, out, data.len()));
            }
        }
        opened
    }
}

/// Hands a compound of the server's to bot 0.
fn tell(world: &mut World, sealer: &mut Sealer, compound: &[u8]) {
    let mut buffer = [0; 1500];
    buffer[..compound.len()].copy_from_slice(compound);
    let len = sealer.seal_rtcp(&mut buffer, compound.len()).unwrap();
    world.bots[0].handle_datagram(world.now, &buffer[..len]).unwrap();
}

/// Opened packets, with the time they were sent at; RTP with its length on the wire.
#[derive(Default)]
struct Opened {
    rtp: Vec<(Instant, RtpHeader, Vec<u8>, usize)>,
    rtcp: Vec<(Instant, Vec<u8>)>,
}

impl Opened {
    fn of(&self, ssrc: u32) -> Vec<&(Instant, RtpHeader, Vec<u8>, usize)> {
        self.rtp.iter().filter(|(_, header, _, _)| header.ssrc == ssrc).collect()
    }
}

/// The SSRC of an SRTP packet; None for SRTCP.
fn ssrc_of(data: &[u8]) -> Option<u32> {
    if rtp::header::is_rtcp(data[1]) {
        return None;
    }
    Some(RtpHeader::parse(data).unwrap().ssrc)
}

fn row<'a>(rows: &'a [ReceivedTrack], track: &str) -> &'a ReceivedTrack {
    rows.iter().find(|row| row.track == track).unwrap()
}
