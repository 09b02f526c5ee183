//! A page in a real browser, from joining to leaving.

use super::churn::{AUDIO_WITHIN, PAUSE, spread};
use super::place::{Failure, Place, ended, sampling};
use super::visit::Visited;
use crate::base::SplitMix;
use crate::clients::bot::marks::SaidMarks;
use crate::clients::canary::ears::PageEars;
use crate::clients::canary::{Browser, Hooks, Page, eyes, put_link};
use crate::people::stage::Stage;
use crate::record::{Level, PersonKind};
use crate::scenario::Canary;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout};
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
    let camera = camera.filter(|_| has_camera).unwrap_or("0");
    let codec = match group.video_codec {
        VideoCodec::Vp8 => "vp8",
        VideoCodec::H264 => "h264",
        VideoCodec::Vp9 => "vp9",
        VideoCodec::Av1 => "av1",
    };
    format!(
        "{}/room/{}?name={name}&join=1&show={show}&audio={audio}&video={video}&codec={codec}\
         &mic=1&camera={camera}",
        stage.server.url, place.room
    )
}

/// Somebody with a browser.
#[derive(Debug, Clone)]
pub struct PageGuest {
    /// The run.
    pub stage: Arc<Stage>,
    /// Their name.
    pub name: String,
    /// Their number among those with browsers, from 1.
    pub index: u32,
    /// Where they go.
    pub place: Place,
    /// What their page is told.
    pub told: Canary,
    /// The marks that the room's bots say.
    pub marks: Option<SaidMarks>,
}

/// Somebody with a page in a browser that runs already, from joining to the end of the run. What fails is a fault.
pub async fn canary(guest: PageGuest, browser: Arc<Browser>) {
    if let Err(failure) = attend(&guest, &browser, None, None).await {
        guest.stage.fault(Some(&guest.name), failure.text);
    }
}

/// A user in the study's loop: a browser is started, the user logs in, enters, checks that sound arrives, stays, leaves
/// and closes the browser, again and again from `begin` on. What fails is a fault.
pub async fn canary_churn(guest: PageGuest, begin: Instant, stay: Duration) {
    let mut end = guest.stage.end();
    let mut random = SplitMix(0x0b50_7e12 ^ u64::from(guest.index));
    let mut token = None;
    tokio::select! {
        () = sleep_until(begin) => {}
        () = ended(&mut end) => return,
    }
    while !guest.stage.finished() {
        let stay = spread(stay, &mut random);
        let visited = round(&guest, &mut token, stay).await;
        if guest.stage.finished() {
            return;
        }
        guest.stage.roster(|roster| match &visited {
            Ok(visited) => {
                let churn = roster.browsers_churn();
                churn.loops += u64::from(visited.whole);
                churn.join_to_first_audio_ms.extend(visited.first_audio_ms);
            }
            Err(failure) => {
                let failures = &mut roster.browsers_churn().failures;
                *failures.entry(failure.reason.to_owned()).or_default() += 1;
            }
        });
        if let Err(failure) = visited {
            guest.stage.fault(Some(&guest.name), failure.text);
        }
        tokio::select! {
            () = sleep(PAUSE) => {}
            () = ended(&mut end) => return,
        }
    }
}

/// One round of the loop. The user is made in the first one: their token is kept.
async fn round(
    guest: &PageGuest,
    token: &mut Option<String>,
    stay: Duration,
) -> Result<Visited, Failure> {
    let login = guest.stage.login.as_ref();
    let made =
        login.filter(|_| token.is_none()).map(|login| login.token(&guest.name, &guest.place.room));
    if let Some(made) = made {
        *token = Some(made.await.map_err(|error| Failure::new("login", error))?);
    }
    let mut end = guest.stage.end();
    let browser = tokio::select! {
        browser = Browser::launch(guest.told.frames_per_second) => browser,
        () = ended(&mut end) => return Ok(Visited::default()),
    };
    let mut browser = browser.map_err(|error| Failure::new("browser", error.to_string()))?;
    let visited = attend(guest, &browser, token.as_deref(), Some(stay)).await;
    browser.stop().await;
    visited
}

/// One time in the room: until the end of the run, or for as long as `stay` says after sound has come.
async fn attend(
    guest: &PageGuest,
    browser: &Browser,
    token: Option<&str>,
    stay: Option<Duration>,
) -> Result<Visited, Failure> {
    let PageGuest { stage, name, place, told, marks, .. } = guest.clone();
    let mut end = stage.end();
    let asked_ms = stage.now_ms();
    stage.comes(&place.person(&name, PersonKind::Chromium));
    let mut address = page_address(&stage, &name, &place, &told);
    if let Some(token) = token {
        address = format!("{address}#token={token}");
    }
    let mixed = place.group.audio == AudioTopology::Mcu && place.voices > 0;
    let ears = marks.filter(|_| mixed).map(|marks| PageEars::new(marks, place.seed()));
    let (link, ears_too) = (place.network.is_some(), ears.is_some());
    let Canary { show, window, jitter_buffer_ms, time_code, .. } = told;
    let hooks = Hooks { window, link, ears: ears_too, time_code, jitter_buffer_ms };
    let page = tokio::select! {
        page = browser.open_with(&address, hooks) => match page {
            Ok(page) => page,
            Err(error) => {
                return Err(Failure::new("browser", format!("could not join: {error}")));
            }
        },
        () = ended(&mut end) => return Ok(Visited::default()),
    };
    let stage = &*stage;
    let mut canary = Caller {
        page: &page,
        name,
        place,
        show,
        stage,
        participant: None,
        ears,
        time_code,
        first_audio_ms: None,
    };
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
        result = canary.stay(asked_ms, stay) => result,
        result = link => result.map(|()| false).map_err(|cause| Failure::new("link", cause)),
        () = ended(&mut end) => Ok(false),
    };
    canary.errors();
    if let Some(participant) = &canary.participant {
        stage.gone(participant);
    }
    let first_audio_ms = canary.first_audio_ms;
    page.close().await;
    result.map(|whole| Visited { whole, first_audio_ms })
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
    /// From asking to join until the first sound.
    first_audio_ms: Option<f64>,
    /// Whether it reads time codes in pictures.
    time_code: bool,
}

/// A moment that may never come.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn no_audio() -> Failure {
    let seconds = AUDIO_WITHIN.as_secs();
    Failure::new("no_audio", format!("heard nothing within {seconds} s of connecting"))
}

impl Caller<'_> {
    /// Stays, for so long after being connected or until it is dropped. Says whether it was the whole time.
    async fn stay(&mut self, asked_ms: u64, stay: Option<Duration>) -> Result<bool, Failure> {
        let lost = |text: String| Failure::new("lost", text);
        match timeout(PAGE_CONNECT_TIMEOUT, self.connect()).await {
            Ok(connected) => connected.map_err(|text| Failure::new("no_connection", text))?,
            Err(_) => {
                let text = "could not join: the page was not connected in time";
                return Err(Failure::new("no_connection", text));
            }
        }
        let took_ms = self.stage.now_ms().saturating_sub(asked_ms);
        // The first sample tells who it is, and begins the first window.
        let first =
            self.page.sample().await.map_err(|error| lost(format!("gives no sample: {error}")))?;
        let id = first.participant.clone();
        self.stage.joined(&self.name, &id);
        let listener = self.place.listener(self.stage, &self.name, &id, Some(self.show));
        self.stage.connected(listener, took_ms);
        self.participant = Some(id);
        self.record(first);
        let mut ticks = sampling();
        let mut failed = 0;
        let connected = Instant::now();
        let leave_at = stay.map(|stay| connected + stay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = until(leave_at) => return self.hears_at_the_end(connected).await.map(|()| true),
            }
            if stay.is_some() && connected.elapsed() > AUDIO_WITHIN && self.first_audio_ms.is_none()
            {
                return Err(no_audio());
            }
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
                        return Err(lost(text));
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

    /// Before leaving: a visit shorter than a sample must have heard something, too.
    async fn hears_at_the_end(&mut self, connected: Instant) -> Result<(), Failure> {
        while self.first_audio_ms.is_none() {
            let sample = self.page.sample().await;
            let sample = sample.map_err(|error| Failure::new("lost", error.to_string()))?;
            if sample.join_to_first_audio_ms.is_some() {
                self.record(sample);
            } else if connected.elapsed() > AUDIO_WITHIN {
                return Err(no_audio());
            }
            sleep(PAGE_POLL).await;
        }
        Ok(())
    }

    fn record(&mut self, sample: wire::QualitySample) {
        self.first_audio_ms = self.first_audio_ms.or(sample.join_to_first_audio_ms);
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
