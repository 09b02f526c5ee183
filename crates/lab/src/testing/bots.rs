//! Bots without media: what one sends, those hear who have it in a slot.

use crate::clients::bot::spec::{BotCommand, BotDriver, BotError, BotHandle, BotOffer, BotSpec};
use crate::clients::bot::words::{AudioSource, VideoSource};
use crate::record::{MIX, MixWindows};
use crate::testing::row;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use wire::QualitySample;
use wire::event::SlotChange;
use wire::room::{Answer, MediaKind, OfferedTrack};

/// Tracks that are being sent, of all bots.
pub type OnAir = Arc<Mutex<BTreeSet<String>>>;

#[derive(Debug, Default)]
pub struct FakeDriver {
    pub on_air: OnAir,
    /// Bots that never connect.
    pub mute_ice: Vec<String>,
    /// Nothing arrives at anyone.
    pub silent: bool,
}

#[derive(Debug)]
pub struct FakeBot {
    spec: BotSpec,
    on_air: OnAir,
    fails: bool,
    silent: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    own: Vec<String>,
    slots: BTreeMap<String, SlotChange>,
    sampled: Instant,
    grown: Option<(u32, u32)>,
    first_told: bool,
}

impl BotDriver for FakeDriver {
    type Handle = FakeBot;
    fn add(&self, spec: BotSpec) -> Result<FakeBot, BotError> {
        let fails = self.mute_ice.contains(&spec.name);
        let state = State {
            own: vec![],
            slots: BTreeMap::new(),
            sampled: Instant::now(),
            grown: None,
            first_told: false,
        };
        let (silent, state) = (self.silent, Mutex::new(state));
        Ok(FakeBot { spec, on_air: Arc::clone(&self.on_air), fails, silent, state })
    }
}

impl FakeBot {
    fn stop(&self, which: impl Fn(&str) -> bool) {
        let own = self.state.lock().expect("state").own.clone();
        let mut on_air = self.on_air.lock().expect("on air");
        own.iter().filter(|track| which(track)).for_each(|track| {
            on_air.remove(track);
        });
    }
}

impl BotHandle for FakeBot {
    async fn offer(&self) -> Result<BotOffer, BotError> {
        let track = |mid: &str, kind| OfferedTrack {
            mid: mid.into(),
            kind,
            name: String::new(),
            opaque: false,
            content_hint: wire::room::ContentHint::Speech,
            layers: Vec::new(),
        };
        let mut tracks = vec![track("0", MediaKind::Audio), track("1", MediaKind::Video)];
        let media = self.spec.media;
        tracks.retain(|track| match track.kind {
            MediaKind::Audio => media.audio != AudioSource::None,
            MediaKind::Video => media.video != VideoSource::None,
        });
        Ok(BotOffer { sdp: format!("v=0\r\ns={}\r\n", self.spec.name), tracks })
    }

    async fn accept(&self, _offer: Answer) -> Result<BotOffer, BotError> {
        Err(BotError::new("meshes are tested with real bots"))
    }

    fn candidate(&self, _candidate: String) {}

    async fn answer(&self, answer: Answer) -> Result<(), BotError> {
        let mut state = self.state.lock().expect("state");
        state.own = answer.tracks.into_iter().map(|track| track.id).collect();
        self.on_air.lock().expect("on air").extend(state.own.iter().cloned());
        Ok(())
    }

    fn pause(&self, _track: String, _paused: bool) {}

    fn layers(&self, _track: String, _layer: u8) {}

    fn downlink(&self, _estimate_kbps: Option<u32>) {}

    fn slots(&self, changes: Vec<SlotChange>) {
        let mut state = self.state.lock().expect("state");
        for change in changes {
            state.slots.insert(change.slot.clone(), change);
        }
    }

    fn grow(&self, audio: u32, video: u32) {
        self.state.lock().expect("state").grown = Some((audio, video));
    }

    fn command(&self, command: BotCommand) {
        self.stop(|track| match command {
            BotCommand::StopVideo => track.ends_with("video"),
            BotCommand::StopAudio => track.ends_with("audio"),
            BotCommand::Leave => true,
        });
    }

    async fn connected(&self) -> Result<(), BotError> {
        if self.fails { Err(BotError::new("DTLS failed on purpose")) } else { Ok(()) }
    }

    async fn sample(&self) -> Result<QualitySample, BotError> {
        let mut state = self.state.lock().expect("state");
        let mixes = state.slots.values().filter(|slot| slot.mix).count();
        if mixes == 0 {
            assert_eq!(state.grown, Some((8, 12)), "the server asked for more slots");
        }
        let mut sample = QualitySample {
            interval_ms: state.sampled.elapsed().as_millis() as u64,
            rtt_ms: Some(1.0),
            ..Default::default()
        };
        state.sampled = Instant::now();
        if self.silent {
            return Ok(sample);
        }
        if !std::mem::replace(&mut state.first_told, true) {
            sample.join_to_first_audio_ms = Some(70.0);
        }
        for _ in 0..mixes {
            let packets = sample.interval_ms / 20;
            sample.received.push(row("", MIX, MediaKind::Audio, packets));
        }
        let on_air = self.on_air.lock().expect("on air");
        for (participant, track) in
            state.slots.values().filter_map(|s| s.participant.as_ref().zip(s.track.as_ref()))
        {
            let video = track.ends_with("video");
            let kind = if video { MediaKind::Video } else { MediaKind::Audio };
            let packets = if on_air.contains(track) { 150 } else { 0 };
            let mut row = row(participant, track, kind, packets);
            row.loss_pct = (packets > 0).then_some(0.0);
            sample.received.push(row);
        }
        Ok(sample)
    }

    async fn heard(&self) -> Result<MixWindows, BotError> {
        Ok(MixWindows { windows: 1, ..MixWindows::default() })
    }
}
