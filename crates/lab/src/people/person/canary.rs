//! A page in a real browser, from joining to leaving.

use super::place::{Place, ended, sampling};
use crate::clients::bot::marks::SaidMarks;
use crate::clients::canary::ears::PageEars;
use crate::clients::canary::{Browser, Hooks, Page, eyes, put_link};
use crate::people::stage::Stage;
use crate::record::{Level, PersonKind};
use crate::scenario::Canary;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use wire::room::{AudioTopology, VideoCodec, VideoTopology};

/// How long a page may take from being opened to being connected.
const PAGE_CONNECT_TIMEOUT: Duration = Duration::from_secs(45);
/// How often a page is asked whether it is connected.
const PAGE_POLL: Duration = Duration::from_millis(100);
/// After so many failed samples in a row the page is given up.
const MAX_FAILED_SAMPLES: u32 = 3;

/// The address that makes the call page join at once.
fn page_address(stage: &Stage, name: &str, place: &Place, told: &Canary) -> String {
    let Canary { show, camera, .. } = told;
    let group = &place.group;
    let (audio, video) = (group.audio.as_str(), group.video.as_str());
    let has_camera = place.sends_video && group.video != VideoTopology::None;
    let camera = if has_camera { camera } else { "0" };
    let codec = match group.video_codec {
        VideoCodec::Vp8 => "vp8",
        VideoCodec::H264 => "h264",
        VideoCodec::Vp9 => "vp9",
        VideoCodec::Av1 => "av1",
    };
    format!(
        "{}/room/{}?name={name}&join=1&show={show}&audio={audio}&video={video}&codec={codec}\
         &mic=1&camera={camera}",
        stage.target, place.room
    )
}

/// A page in a real browser, from joining to leaving.
pub async fn canary(
    stage: Arc<Stage>,
    browser: Arc<Browser>,
    name: String,
    place: Place,
    told: Canary,
    marks: Option<SaidMarks>,
) {
    let mut end = stage.end();
    let asked_ms = stage.now_ms();
    stage.comes(&place.person(&name, PersonKind::Chromium));
    let address = page_address(&stage, &name, &place, &told);
    let mixed = place.group.audio == AudioTopology::Mcu && place.voices > 0;
    let ears = marks.filter(|_| mixed).map(|marks| PageEars::new(marks, place.seed()));
    let (link, ears_too) = (place.network.is_some(), ears.is_some());
    let Canary { show, window, jitter_buffer_ms, time_code, .. } = told;
    let hooks = Hooks { window, link, ears: ears_too, time_code, jitter_buffer_ms };
    let page = tokio::select! {
        page = browser.open_with(&address, hooks) => match page {
            Ok(page) => page,
            Err(error) => {
                return stage.fault(Some(&name), format!("could not join: {error}"));
            }
        },
        () = ended(&mut end) => return,
    };
    let (stage, page) = (&*stage, page);
    let mut canary =
        Caller { stage, page: &page, name, place, show, participant: None, ears, time_code };
    let (mut known, person) = (Vec::new(), canary.name.clone());
    let (networks, network) = (&stage.networks, canary.place.network);
    let link = async {
        if let (Some(networks), Some(network)) = (networks, network) {
            let through = |sdp: &str| networks.through(network, &person, sdp, &mut known);
            put_link(&page, through).await.map_err(|error| format!("gets no link: {error}"))
        } else {
            std::future::pending().await
        }
    };
    let result = tokio::select! {
        result = canary.stay(asked_ms) => result,
        result = link => result,
        () = ended(&mut end) => Ok(()),
    };
    canary.errors();
    if let Err(cause) = result {
        stage.fault(Some(&canary.name), cause);
    }
    if let Some(participant) = &canary.participant {
        stage.gone(participant);
    }
    page.close().await;
}

struct Caller<'a> {
    stage: &'a Stage,
    page: &'a Page,
    name: String,
    place: Place,
    show: u32,
    participant: Option<String>,
    /// Set if the room is mixed and bots say marks.
    ears: Option<PageEars>,
    /// Whether it reads time codes in pictures.
    time_code: bool,
}

impl Caller<'_> {
    async fn stay(&mut self, asked_ms: u64) -> Result<(), String> {
        match timeout(PAGE_CONNECT_TIMEOUT, self.connect()).await {
            Ok(connected) => connected?,
            Err(_) => return Err("could not join: the page was not connected in time".into()),
        }
        let took_ms = self.stage.now_ms().saturating_sub(asked_ms);
        // The first sample tells who it is, and begins the first window.
        let first =
            self.page.sample().await.map_err(|error| format!("gives no sample: {error}"))?;
        let id = first.participant.clone();
        self.stage.joined(&self.name, &id);
        let listener = self.place.listener(self.stage, &self.name, &id, Some(self.show));
        self.stage.connected(listener, took_ms);
        self.participant = Some(id);
        self.record(first);
        let mut ticks = sampling();
        let mut failed = 0;
        loop {
            ticks.tick().await;
            self.errors();
            match self.page.sample().await {
                Ok(mut sample) => {
                    failed = 0;
                    if let Some(ears) = &mut self.ears
                        && let Err(error) = ears.hear(self.page, &mut sample).await
                    {
                        let text = format!("hears no marks: {error}");
                        self.stage.event(Level::Warn, Some(&self.name), text);
                    }
                    if self.time_code
                        && let Err(error) = eyes::see(self.page, &mut sample).await
                    {
                        let text = format!("reads no time codes: {error}");
                        self.stage.event(Level::Warn, Some(&self.name), text);
                    }
                    self.record(sample);
                }
                Err(error) => {
                    failed += 1;
                    let text = format!("gives no sample: {error}");
                    if failed == MAX_FAILED_SAMPLES {
                        return Err(text);
                    }
                    self.stage.event(Level::Warn, Some(&self.name), text);
                }
            }
        }
    }

    async fn connect(&self) -> Result<(), String> {
        loop {
            let state =
                self.page.state().await.map_err(|error| format!("could not join: {error}"))?;
            if let Some(state) = state {
                match state.state.as_str() {
                    "connected" => return Ok(()),
                    "failed" | "ended" => {
                        let cause = state.error.unwrap_or_else(|| "no reason given".into());
                        return Err(format!("could not join: {cause}"));
                    }
                    _ => {}
                }
            }
            sleep(PAGE_POLL).await;
        }
    }

    fn record(&self, sample: wire::QualitySample) {
        let t_ms = self.stage.now_ms();
        self.stage.roster(|roster| {
            for row in &sample.sent {
                let who = (sample.participant.as_str(), self.name.as_str());
                roster.sends(&self.place.room, who, &row.track, row.kind, t_ms);
            }
        });
        self.stage.sample(&self.name, PersonKind::Chromium, sample);
    }

    fn errors(&self) {
        for error in self.page.take_errors() {
            self.stage.event(Level::Warn, Some(&self.name), format!("page: {error}"));
        }
    }
}
