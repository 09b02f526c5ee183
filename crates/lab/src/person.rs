//! The people of a run: a bot or a browser's page, from joining to leaving.

use crate::bots::{BotCommand, BotDriver, BotHandle, BotSpec, SlotPool};
use crate::canary::{Browser, Page};
use crate::checks::{Listener, Span};
use crate::mos;
use crate::record::{Level, PersonKind};
use crate::scenario::RoomGroup;
use crate::signaling::{Incoming, Signaling, SignalingError};
use crate::stage::Stage;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep, timeout};
use wire::event::{Event, EventEnvelope};
use wire::quality::SAMPLE_INTERVAL_MS;
use wire::room::{AudioTopology, Join, Joined, Offer, Resume, Resumed, VideoCodec, VideoTopology};
use wire::{ErrorCode, RoomError};

/// ICE and DTLS of a bot may take so long.
const BOT_CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// A page may take so long from being opened to being connected.
const PAGE_CONNECT_TIMEOUT: Duration = Duration::from_secs(45);
/// How often a page is asked whether it is connected.
const PAGE_POLL: Duration = Duration::from_millis(100);
/// A lost socket is tried again for as long as the server keeps the participant.
const RESUME_WITHIN: Duration = Duration::from_secs(60);
/// So many samples in a row may fail before the page is given up.
const MAX_FAILED_SAMPLES: u32 = 3;

fn sampling() -> Interval {
    let period = Duration::from_millis(SAMPLE_INTERVAL_MS);
    let mut ticks = interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Comes back when the run ends.
async fn ended(end: &mut watch::Receiver<bool>) {
    // An error means that the stage is gone: the run has ended too.
    let _ = end.wait_for(|end| *end).await;
}

/// Where someone goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The room's id.
    pub room: String,
    /// What kind of room it is.
    pub group: RoomGroup,
}

impl Place {
    /// Who from now on should receive what the others send. In a mixed room all voices are one.
    fn listener(&self, stage: &Stage, name: &str, id: &str, show: Option<u32>) -> Listener {
        Listener {
            room: self.room.clone(),
            person: name.to_owned(),
            participant: id.to_owned(),
            present: Span { from_ms: stage.now_ms(), until_ms: None },
            max_audio: (self.group.audio == AudioTopology::Mcu).then_some(1),
            max_video: show,
        }
    }
}

/// A bot, from joining to leaving. Every way in which it can fail is a fault of the run.
pub async fn bot<D: BotDriver>(
    stage: Arc<Stage>,
    driver: Arc<D>,
    spec: BotSpec,
    place: Place,
    commands: mpsc::Receiver<BotCommand>,
) {
    let name = spec.name.clone();
    let mut end = stage.end();
    let asked_ms = stage.now_ms();
    let joining = join(&stage, &*driver, &spec, &place);
    let (handle, signaling, incoming, joined, session) = tokio::select! {
        joined = joining => match joined {
            Ok(joined) => joined,
            Err(cause) => return stage.fault(Some(&name), format!("could not join: {cause}")),
        },
        () = ended(&mut end) => return,
    };
    let participant = joined.participant.clone();
    let bot = Bot {
        stage: Arc::clone(&stage),
        handle: &handle,
        name: name.clone(),
        place,
        session,
        seen: joined.epoch,
        joined,
        asked_ms,
        pool: spec.slots,
        signaling: Some(signaling),
    };
    if let Err(cause) = bot.stay(incoming, commands).await {
        stage.fault(Some(&name), cause);
    }
    stage.gone(&participant);
}

type Entered<H> = (H, Signaling, mpsc::Receiver<Incoming>, Joined, String);

/// Everything up to the first answer.
async fn join<D: BotDriver>(
    stage: &Stage,
    driver: &D,
    spec: &BotSpec,
    place: &Place,
) -> Result<Entered<D::Handle>, String> {
    let handle = driver.add(spec.clone()).map_err(|error| error.to_string())?;
    let (signaling, incoming) =
        Signaling::connect(&stage.target.socket()).await.map_err(|error| error.to_string())?;
    let session = format!("{}-{}", place.room, spec.name);
    let group = &place.group;
    let join = Join {
        room: place.room.clone(),
        name: spec.name.clone(),
        audio: Some(group.audio),
        video: Some(group.video),
        video_codec: Some(group.video_codec),
        token: None,
        session: Some(session.clone()),
    };
    let joined = signaling.join(&join).await.map_err(|error| error.to_string())?;
    stage.joined(&spec.name, &joined.participant);
    let t_ms = stage.now_ms();
    stage.roster(|roster| roster.joined(&joined, &spec.name, t_ms));
    negotiate(&handle, &signaling, &session).await?;
    Ok((handle, signaling, incoming, joined, session))
}

/// One offer and its answer.
async fn negotiate<H: BotHandle>(
    handle: &H,
    signaling: &Signaling,
    session: &str,
) -> Result<(), String> {
    let offer = handle.offer().await.map_err(|error| format!("no offer: {error}"))?;
    let offer = Offer { sdp: offer.sdp, tracks: offer.tracks, session: Some(session.to_owned()) };
    let answer = signaling.offer(&offer).await.map_err(|error| format!("room.offer: {error}"))?;
    handle.answer(answer).await.map_err(|error| format!("the answer was refused: {error}"))
}

type Resuming = Pin<Box<dyn Future<Output = Result<Reconnected, String>> + Send>>;
type Reconnected = (Signaling, mpsc::Receiver<Incoming>, Resumed);

/// Why a bot's loop turned.
enum Turn {
    Connected(Result<(), String>),
    Incoming(Option<Incoming>),
    Reconnected(Result<Reconnected, String>),
    Sample,
    Command(BotCommand),
    End,
}

struct Bot<'a, H> {
    stage: Arc<Stage>,
    handle: &'a H,
    name: String,
    place: Place,
    session: String,
    joined: Joined,
    /// Number of the last event seen.
    seen: u64,
    asked_ms: u64,
    pool: SlotPool,
    /// None while the socket is lost.
    signaling: Option<Signaling>,
}

async fn maybe<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

impl<H: BotHandle> Bot<'_, H> {
    /// Stays until the end of the run, or until it is told to leave.
    async fn stay(
        mut self,
        incoming: mpsc::Receiver<Incoming>,
        mut commands: mpsc::Receiver<BotCommand>,
    ) -> Result<(), String> {
        let mut end = self.stage.end();
        let mut incoming = Some(incoming);
        let mut resuming: Option<Resuming> = None;
        let (mut connected, mut orders) = (false, true);
        let mut ticks = sampling();
        let mut connecting = pin!(timeout(BOT_CONNECT_TIMEOUT, self.handle.connected()));
        loop {
            let turn = tokio::select! {
                biased;
                () = ended(&mut end) => Turn::End,
                result = &mut connecting, if !connected => Turn::Connected(match result {
                    Ok(result) => result.map_err(|error| format!("could not connect: {error}")),
                    Err(_) => Err("could not connect: ICE and DTLS did not come to an end".into()),
                }),
                message = maybe(incoming.as_mut().map(|i| i.recv())) => Turn::Incoming(message),
                result = maybe(resuming.as_mut()) => Turn::Reconnected(result),
                command = commands.recv(), if orders => match command {
                    Some(command) => Turn::Command(command),
                    None => { orders = false; continue }
                },
                _ = ticks.tick(), if connected => Turn::Sample,
            };
            match turn {
                Turn::End => break,
                Turn::Connected(result) => {
                    result?;
                    connected = true;
                    ticks = sampling();
                    let id = &self.joined.participant;
                    let listener = self.place.listener(&self.stage, &self.name, id, None);
                    let took_ms = self.stage.now_ms().saturating_sub(self.asked_ms);
                    self.stage.connected(listener, took_ms);
                }
                Turn::Incoming(Some(Incoming::Event(_, event))) => self.event(event).await?,
                Turn::Incoming(gone) => {
                    let cause = match gone {
                        Some(Incoming::Closed(cause)) => cause,
                        _ => "its events were not taken in time".to_owned(),
                    };
                    self.stage.event(
                        Level::Warn,
                        Some(&self.name),
                        format!("socket lost: {cause}"),
                    );
                    (self.signaling, incoming) = (None, None);
                    resuming = Some(self.resume());
                }
                Turn::Reconnected(result) => {
                    let (signaling, events, missed) = result?;
                    (resuming, incoming) = (None, Some(events));
                    self.signaling = Some(signaling);
                    self.stage.event(Level::Info, Some(&self.name), "socket resumed");
                    for event in missed.events {
                        self.event(event).await?;
                    }
                }
                Turn::Sample => self.sample().await?,
                Turn::Command(BotCommand::Leave) => break,
                Turn::Command(command) => {
                    self.stage.event(Level::Info, Some(&self.name), format!("{command:?}"));
                    self.handle.command(command);
                }
            }
        }
        self.leave().await;
        Ok(())
    }

    async fn leave(&mut self) {
        self.handle.command(BotCommand::Leave);
        self.stage.event(Level::Info, Some(&self.name), "leaves");
        if let Some(signaling) = &self.signaling {
            let _ = timeout(Duration::from_secs(1), signaling.leave()).await;
        }
    }

    async fn event(&mut self, envelope: EventEnvelope) -> Result<(), String> {
        self.stage.room_event(&self.place.room, &envelope);
        self.seen = self.seen.max(envelope.epoch);
        match envelope.event {
            Event::Slots { slots } => self.handle.slots(slots),
            Event::SlotsWanted { audio, video } => self.grow(audio, video).await?,
            Event::RoomEnded { reason } => return Err(format!("the room ended: {reason}")),
            Event::ParticipantLeft { participant, reason }
                if participant == self.joined.participant =>
            {
                return Err(format!("was put out of the room: {reason:?}"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Offers more slots, if more are wanted than there are.
    async fn grow(&mut self, audio: u32, video: u32) -> Result<(), String> {
        let wanted =
            SlotPool { audio: audio.max(self.pool.audio), video: video.max(self.pool.video) };
        let Some(signaling) = self.signaling.as_ref().filter(|_| wanted != self.pool) else {
            return Ok(());
        };
        self.handle.grow(wanted.audio, wanted.video);
        self.pool = wanted;
        match negotiate(self.handle, signaling, &self.session).await {
            Err(cause) => Err(format!("could not get more slots: {cause}")),
            Ok(()) => Ok(()),
        }
    }

    async fn sample(&mut self) -> Result<(), String> {
        let sample = self.handle.sample().await;
        let mut sample = sample.map_err(|error| format!("gives no sample: {error}"))?;
        sample.participant.clone_from(&self.joined.participant);
        mos::fill(&mut sample);
        if let Some(signaling) = &self.signaling {
            // A lost socket is told by its own event.
            let _ = signaling.quality_sample(&sample).await;
        }
        self.stage.sample(&self.name, PersonKind::Bot, sample);
        Ok(())
    }

    /// Connects again and takes up where it was, with growing pauses.
    fn resume(&self) -> Resuming {
        let address = self.stage.target.socket();
        let resume = Resume {
            room: self.place.room.clone(),
            participant: self.joined.participant.clone(),
            session: self.session.clone(),
            seen: self.seen,
        };
        Box::pin(async move {
            let begin = Instant::now();
            let mut pause = Duration::from_millis(200);
            loop {
                sleep(pause).await;
                let cause = match try_resume(&address, &resume).await {
                    Ok(reconnected) => return Ok(reconnected),
                    Err(SignalingError::Refused(RoomError {
                        code: ErrorCode::Gone,
                        message,
                        ..
                    })) => {
                        return Err(format!("lost its place in the room: {message}"));
                    }
                    Err(error) => error,
                };
                if begin.elapsed() > RESUME_WITHIN {
                    return Err(format!("could not resume: {cause}"));
                }
                pause = (pause * 2).min(Duration::from_secs(5));
            }
        })
    }
}

async fn try_resume(address: &str, resume: &Resume) -> Result<Reconnected, SignalingError> {
    let (signaling, incoming) = Signaling::connect(address).await?;
    let missed = signaling.resume(resume).await?;
    Ok((signaling, incoming, missed))
}

/// The address that makes the call page join at once.
pub fn page_address(stage: &Stage, name: &str, place: &Place, show: u32) -> String {
    let group = &place.group;
    let audio = match group.audio {
        AudioTopology::Mesh => "mesh",
        AudioTopology::Sfu => "sfu",
        AudioTopology::Mcu => "mcu",
    };
    let (video, camera) = match group.video {
        VideoTopology::None => ("none", "0"),
        VideoTopology::Mesh => ("mesh", "360p"),
        VideoTopology::Sfu => ("sfu", "360p"),
    };
    let codec = match group.video_codec {
        VideoCodec::Vp8 => "vp8",
        VideoCodec::H264 => "h264",
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
    show: u32,
) {
    let mut end = stage.end();
    let asked_ms = stage.now_ms();
    let address = page_address(&stage, &name, &place, show);
    let page = tokio::select! {
        page = browser.open(&address) => match page {
            Ok(page) => page,
            Err(error) => {
                return stage.fault(Some(&name), format!("could not join: {error}"));
            }
        },
        () = ended(&mut end) => return,
    };
    let mut canary = Canary { stage: &stage, page: &page, name, place, show, participant: None };
    let result = tokio::select! {
        result = canary.stay(asked_ms) => result,
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

struct Canary<'a> {
    stage: &'a Stage,
    page: &'a Page,
    name: String,
    place: Place,
    show: u32,
    participant: Option<String>,
}

impl Canary<'_> {
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
                Ok(sample) => {
                    failed = 0;
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
