//! A bot's one time in a room: it enters, stays and leaves.

use super::mesh::{self, Connecting, Mesh};
use super::place::{Failure, Place, ended, sampling};
use super::way::Way;
use crate::clients::bot::spec::{BotCommand, BotDriver, BotHandle, BotSpec, SlotPool};
use crate::clients::seat::{Incoming, OFFERED, Receiving, Seat, SignalingError};
use crate::clients::{self, Server};
use crate::observe::mos;
use crate::people::stage::Stage;
use crate::record::{Level, MixWindows, PersonKind};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use wire::event::{Event, EventEnvelope};
use wire::room::{Answer, AudioTopology, Join, Joined, MediaKind, Offer, Resume, Resumed};
use wire::{ErrorCode, RoomError};

/// How long ICE and DTLS of a bot may take.
const BOT_CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a bot tries to resume a lost socket: as long as the server keeps the participant.
const RESUME_WITHIN: Duration = Duration::from_secs(60);
/// Most orders that may wait for a bot.
const MAX_ORDERS: usize = 8;

/// How long a visit lasts, and what must happen in it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Until {
    /// It ends by itself so long after it was connected…
    pub(super) stay: Option<Duration>,
    /// …and then at the latest, connected or not.
    pub(super) leave_at: Option<Instant>,
    /// How long after connecting sound must have arrived.
    pub(super) audio_within: Option<Duration>,
}

/// What a visit that ended well had.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Visited {
    /// Whether it stayed as long as planned, and the end of the run did not cut it.
    pub(super) whole: bool,
    pub(super) first_audio_ms: Option<f64>,
}

/// One bot's one time in a room.
pub(super) struct Visit<D: BotDriver> {
    pub(super) stage: Arc<Stage>,
    pub(super) driver: Arc<D>,
    pub(super) spec: BotSpec,
    pub(super) place: Place,
    pub(super) session: String,
    /// Which of its bot's visits, from 1.
    pub(super) round: u64,
}

impl<D: BotDriver> Visit<D> {
    /// The visit from joining to leaving; meanwhile it takes orders from the stage.
    pub(super) async fn make(self, until: Until) -> Result<Visited, Failure> {
        let (stage, bot) = (Arc::clone(&self.stage), self.spec.index);
        let (orders, commands) = mpsc::channel(MAX_ORDERS);
        stage.attends(bot, orders);
        let visited = self.attend(commands, until).await;
        stage.attended(bot);
        visited
    }

    async fn attend(
        self,
        commands: mpsc::Receiver<BotCommand>,
        until: Until,
    ) -> Result<Visited, Failure> {
        let stage = Arc::clone(&self.stage);
        let mut end = stage.end();
        let entered = tokio::select! {
            entered = self.enter() => entered,
            () = ended(&mut end) => return Ok(Visited::default()),
        };
        let (bot, incoming) = entered
            .map_err(|failure| Failure { text: format!("could not join: {failure}"), ..failure })?;
        let participant = bot.joined.participant.clone();
        let stayed = bot.stay(incoming, commands, until).await;
        stage.gone(&participant);
        stayed
    }

    /// Everything up to the first answer, and in a mesh to the offers to all who are there.
    async fn enter(mut self) -> Result<(Bot<D>, mpsc::Receiver<Incoming>), Failure> {
        let (asked_ms, asked) = (self.stage.now_ms(), std::time::Instant::now());
        self.spec.tones = self.place.tones(&self.spec);
        self.spec.marks = self.place.marks(&self.spec);
        self.spec.talk = self.place.talk(&self.spec, self.round);
        let by_mesh = mesh::kinds(&self.place.group);
        let server = self.server_handle()?;
        let of_call = |error: &SignalingError| Failure::of_call("", error);
        let (target, audio) = (&self.stage.server, self.place.group.audio);
        let receiving = target.adapter.receiving(audio);
        let linked = self.place.network.is_some();
        let taken = clients::take_seat(target, audio, linked).await;
        let (signaling, incoming) = taken.map_err(|e| of_call(&e))?;
        let joined = signaling.join(&self.join()).await.map_err(|e| of_call(&e))?;
        self.stage.joined(&self.spec.name, &joined.participant);
        let t_ms = self.stage.now_ms();
        self.stage.roster(|roster| roster.joined(&joined, &self.spec.name, t_ms));
        let connecting = FuturesUnordered::new();
        let mut way = Way::of(&self.spec.name);
        if let Some(server) = &server {
            let through = |sdp: &str| way.through(&self.stage, &self.place, sdp);
            negotiate(&**server, &*signaling, &self.session, through).await?;
            connecting.push(to_server(Arc::clone(server)));
        }
        let mut bot = Bot {
            name: self.spec.name.clone(),
            pool: self.spec.slots,
            seen: joined.epoch,
            hears: self.spec.tones.is_some_and(|role| role.listens),
            first_audio_ms: None,
            awaited: BTreeSet::new(),
            stage: self.stage,
            place: self.place,
            session: self.session,
            mesh: None,
            server,
            way,
            connecting,
            joined,
            asked_ms,
            signaling: Some(signaling),
        };
        if !by_mesh.is_empty() {
            bot.call_everyone(self.driver, &self.spec, by_mesh, asked).await?;
            return Ok((bot, incoming));
        }
        let others = bot.joined.participants.iter().map(|other| other.id.clone());
        match receiving {
            Receiving::Slots => return Ok((bot, incoming)),
            Receiving::Each | Receiving::Called => bot.awaited.extend(others),
            Receiving::Offered => bot.awaited.extend([OFFERED.to_owned()]),
        }
        let kinds = if receiving == Receiving::Called { bot.place.kinds() } else { Vec::new() };
        bot.mesh = Some(Mesh::of_server(self.driver, &self.spec, kinds, asked));
        Ok((bot, incoming))
    }

    /// The connection with the server, if there is something to send or receive by it.
    fn server_handle(&mut self) -> Result<Option<Arc<D::Handle>>, Failure> {
        let kinds = self.place.kinds();
        let (adapter, audio) = (self.stage.server.adapter, self.place.group.audio);
        let sends_alone = adapter.receiving(audio) != Receiving::Slots;
        let media = mesh::only(self.spec.media, &kinds);
        if kinds.is_empty() || (sends_alone && media == mesh::only(media, &[])) {
            return Ok(None);
        }
        let slots = match sends_alone {
            true => SlotPool { audio: 0, video: 0 },
            false => self.place.slots(self.spec.slots),
        };
        self.spec.slots = slots;
        self.spec.one_line = adapter.one_line(audio);
        let added = self.driver.add(BotSpec { media, slots, ..self.spec.clone() });
        let added = added.map_err(|error| Failure::new("bot", error.to_string()))?;
        Ok(Some(Arc::new(added)))
    }

    fn join(&self) -> Join {
        let group = &self.place.group;
        Join {
            room: self.place.room.clone(),
            name: self.spec.name.clone(),
            audio: Some(group.audio),
            video: Some(group.video),
            preset: None,
            video_codec: Some(group.video_codec),
            token: None,
            session: Some(self.session.clone()),
        }
    }
}

/// The connection with the server, among those that are waited for.
fn to_server<H: BotHandle>(handle: Arc<H>) -> Connecting {
    Box::pin(async move {
        let connected = handle.connected().await;
        (String::new(), connected.map_err(|error| error.to_string()))
    })
}

/// One offer and its answer.
async fn negotiate<H: BotHandle>(
    handle: &H,
    signaling: &dyn Seat,
    session: &str,
    through: impl FnOnce(&str) -> String,
) -> Result<(), Failure> {
    let of_media = |what: &str, error: &dyn fmt::Display| {
        Failure::new("negotiation", format!("{what}: {error}"))
    };
    let offer = handle.offer().await.map_err(|error| of_media("no offer", &error))?;
    let offer = Offer { sdp: offer.sdp, tracks: offer.tracks, session: Some(session.to_owned()) };
    let answer = signaling.offer(&offer).await.map_err(|e| Failure::of_call("room.offer: ", &e))?;
    let answer = Answer { sdp: through(&answer.sdp), ..answer };
    let taken = handle.answer(answer).await;
    taken.map_err(|error| of_media("the answer was refused", &error))
}

type Resuming = Pin<Box<dyn Future<Output = Result<Reconnected, String>> + Send>>;
type Reconnected = (Box<dyn Seat>, mpsc::Receiver<Incoming>, Resumed);

/// Why a bot's loop turned.
enum Turn {
    Link(String, Result<(), String>),
    TooLate,
    Incoming(Option<Incoming>),
    Reconnected(Result<Reconnected, String>),
    Sample,
    NoAudio,
    Command(BotCommand),
    Left,
    End,
}

struct Bot<D: BotDriver> {
    stage: Arc<Stage>,
    /// The connection with the server; None if all media goes by the mesh.
    server: Option<Arc<D::Handle>>,
    way: Way,
    mesh: Option<Mesh<D>>,
    /// Connections under way…
    connecting: FuturesUnordered<Connecting>,
    /// …and those that the bot waits for before it counts as connected; the server's is the empty name.
    awaited: BTreeSet<String>,
    name: String,
    place: Place,
    session: String,
    joined: Joined,
    /// Number of the last event seen.
    seen: u64,
    asked_ms: u64,
    pool: SlotPool,
    /// Whether it checks what it hears of the mix.
    hears: bool,
    first_audio_ms: Option<f64>,
    /// None while the socket is lost.
    signaling: Option<Box<dyn Seat>>,
}

async fn maybe<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// The time of a deadline that may be none.
async fn at(deadline: Option<Instant>) {
    maybe(deadline.map(sleep_until)).await;
}

impl<D: BotDriver> Bot<D> {
    /// Announces what it sends by the mesh, and makes offers to all who are there.
    async fn call_everyone(
        &mut self,
        driver: Arc<D>,
        spec: &BotSpec,
        kinds: Vec<MediaKind>,
        asked: std::time::Instant,
    ) -> Result<(), Failure> {
        let Some(signaling) = &self.signaling else { return Ok(()) };
        let mut mesh = Mesh::announce(driver, spec, kinds, asked, &**signaling)
            .await
            .map_err(|error| Failure::of_call("room.announce: ", &error))?;
        for other in &self.joined.participants {
            let called = mesh.call(&other.id, &**signaling).await;
            let called = called.map_err(|cause| Failure::new("negotiation", cause))?;
            if let Some(connecting) = called {
                self.connecting.push(connecting);
                self.awaited.insert(other.id.clone());
            }
        }
        self.mesh = Some(mesh);
        Ok(())
    }

    /// Stays until the end of the run, or as long as `until` says, or until it is told to leave.
    async fn stay(
        mut self,
        incoming: mpsc::Receiver<Incoming>,
        mut commands: mpsc::Receiver<BotCommand>,
        until: Until,
    ) -> Result<Visited, Failure> {
        let mut end = self.stage.end();
        let mut incoming = Some(incoming);
        let mut resuming: Option<Resuming> = None;
        let (mut connected, mut orders, mut whole) = (false, true, false);
        let mut ticks = sampling();
        let mut connect_by = Some(Instant::now() + BOT_CONNECT_TIMEOUT);
        let (mut leave_at, mut audio_by) = (until.leave_at, None);
        let lost = |cause| Failure::new("lost", cause);
        if self.server.is_some() {
            self.awaited.insert(String::new());
        }
        loop {
            if !connected && self.awaited.is_empty() {
                (connected, connect_by) = (true, None);
                (leave_at, audio_by) = self.connected(until);
                ticks = sampling();
            }
            let turn = tokio::select! {
                biased;
                () = ended(&mut end) => Turn::End,
                Some((who, result)) = self.connecting.next() => Turn::Link(who, result),
                () = at(connect_by) => Turn::TooLate,
                message = maybe(incoming.as_mut().map(|i| i.recv())) => Turn::Incoming(message),
                result = maybe(resuming.as_mut()) => Turn::Reconnected(result),
                command = commands.recv(), if orders => match command {
                    Some(command) => Turn::Command(command),
                    None => { orders = false; continue }
                },
                () = at(leave_at) => Turn::Left,
                () = at(audio_by) => Turn::NoAudio,
                _ = ticks.tick(), if connected => Turn::Sample,
            };
            match turn {
                Turn::End => break,
                Turn::Link(who, result) => self.linked(&who, result)?,
                Turn::TooLate => {
                    let text = "could not connect: ICE and DTLS did not come to an end";
                    return Err(Failure::new("ice_dtls", text));
                }
                Turn::Incoming(Some(Incoming::Event(_, event))) => {
                    self.event(event).await.map_err(lost)?;
                }
                Turn::Incoming(Some(Incoming::Call(who))) => {
                    self.call(&who).await.map_err(lost)?;
                }
                Turn::Incoming(Some(Incoming::Refused(who, error))) => {
                    return Err(Failure::of_call(&format!("no connection with {who}: "), &error));
                }
                Turn::Incoming(gone) => {
                    self.socket_lost(gone);
                    incoming = None;
                    resuming = Some(self.resume());
                }
                Turn::Reconnected(result) => {
                    let (signaling, events, missed) = result.map_err(lost)?;
                    (resuming, incoming) = (None, Some(events));
                    self.signaling = Some(signaling);
                    self.stage.event(Level::Info, Some(&self.name), "socket resumed");
                    for event in missed.events {
                        self.event(event).await.map_err(lost)?;
                    }
                }
                Turn::Sample => {
                    self.sample().await.map_err(lost)?;
                    audio_by = audio_by.filter(|_| self.first_audio_ms.is_none());
                }
                Turn::NoAudio => {
                    audio_by = None;
                    self.sample().await.map_err(lost)?;
                    self.check_audio(until.audio_within)?;
                }
                Turn::Left => {
                    if connected {
                        whole = true;
                        self.sample().await.map_err(lost)?;
                    }
                    break;
                }
                Turn::Command(BotCommand::Leave) => break,
                Turn::Command(command) => {
                    self.stage.event(Level::Info, Some(&self.name), format!("{command:?}"));
                    self.handles().for_each(|handle| handle.command(command));
                }
            }
        }
        self.leave().await;
        Ok(Visited { whole, first_audio_ms: self.first_audio_ms })
    }

    /// All is connected: from now on they should receive and be received. Returns when to leave, and
    /// until when sound must have come.
    fn connected(&self, until: Until) -> (Option<Instant>, Option<Instant>) {
        let id = &self.joined.participant;
        let listener = self.place.listener(&self.stage, &self.name, id, None);
        let took_ms = self.stage.now_ms().saturating_sub(self.asked_ms);
        self.stage.connected(listener, took_ms);
        let after = |span: Option<Duration>| span.map(|span| Instant::now() + span);
        let leave_at = [after(until.stay), until.leave_at].into_iter().flatten().min();
        (leave_at, after(until.audio_within))
    }

    /// A connection came up or failed. A failure does not count if the other one is gone.
    fn linked(&mut self, who: &str, result: Result<(), String>) -> Result<(), Failure> {
        self.awaited.remove(who);
        let there = who.is_empty() || self.mesh.as_ref().is_some_and(|mesh| mesh.has(who));
        let with = if who.is_empty() { String::new() } else { format!(" with {who}") };
        match result {
            Err(error) if there => {
                let text = format!("could not connect{with}: {error}");
                Err(Failure::new("ice_dtls", text))
            }
            _ => Ok(()),
        }
    }

    fn check_audio(&self, within: Option<Duration>) -> Result<(), Failure> {
        if self.first_audio_ms.is_some() {
            return Ok(());
        }
        let seconds = within.unwrap_or_default().as_secs_f64();
        Err(Failure::new("no_audio", format!("heard nothing within {seconds} s of connecting")))
    }

    fn socket_lost(&mut self, gone: Option<Incoming>) {
        let cause = match gone {
            Some(Incoming::Closed(cause)) => cause,
            _ => "its events were not taken in time".to_owned(),
        };
        self.stage.event(Level::Warn, Some(&self.name), format!("socket lost: {cause}"));
        self.signaling = None;
    }

    /// The connection with the server and all of the mesh.
    fn handles(&self) -> impl Iterator<Item = &Arc<D::Handle>> {
        self.server.iter().chain(self.mesh.iter().flat_map(Mesh::links))
    }

    async fn leave(&mut self) {
        self.handles().for_each(|handle| handle.command(BotCommand::Leave));
        self.stage.event(Level::Info, Some(&self.name), "leaves");
        self.stage.sends_no_more(&self.place.room, &self.joined.participant);
        if let Some(signaling) = &self.signaling {
            let _ = timeout(Duration::from_secs(1), signaling.leave()).await;
        }
    }

    /// Offers a connection to somebody who sends.
    async fn call(&mut self, who: &str) -> Result<(), String> {
        if let (Some(mesh), Some(signaling)) = (&mut self.mesh, &self.signaling) {
            self.connecting.extend(mesh.call(who, &**signaling).await?);
        }
        Ok(())
    }

    async fn event(&mut self, envelope: EventEnvelope) -> Result<(), String> {
        self.stage.room_event(&self.place.room, &envelope);
        self.seen = self.seen.max(envelope.epoch);
        match envelope.event {
            Event::Slots { slots } => {
                let offered = self.mesh.as_ref().and_then(|mesh| mesh.with(OFFERED));
                offered
                    .or(self.server.as_ref())
                    .into_iter()
                    .for_each(|bot| bot.slots(slots.clone()));
            }
            Event::TrackPaused { track, paused } => {
                self.server.iter().for_each(|bot| bot.pause(track.clone(), paused));
            }
            Event::TrackLayers { track, layer } => {
                self.server.iter().for_each(|bot| bot.layers(track.clone(), layer));
            }
            Event::Downlink { estimate_kbps } => {
                self.server.iter().for_each(|bot| bot.downlink(estimate_kbps));
            }
            Event::SlotsWanted { audio, video } => self.grow(audio, video).await?,
            Event::MediaFailed { cause, message } => {
                return Err(format!("media failed, {cause:?}: {message}"));
            }
            Event::RoomEnded { reason } => return Err(format!("the room ended: {reason}")),
            Event::ParticipantLeft { participant, reason, .. } => {
                if participant == self.joined.participant {
                    return Err(format!("was put out of the room: {reason:?}"));
                }
                if let Some(mesh) = &mut self.mesh {
                    mesh.gone(&participant);
                    self.awaited.remove(&participant);
                }
            }
            Event::PeerOffer { from, sdp, tracks } => {
                if let (Some(mesh), Some(signaling)) = (&mut self.mesh, &self.signaling) {
                    let sdp = self.way.through(&self.stage, &self.place, &sdp);
                    let offer = Answer { sdp, tracks };
                    self.connecting.extend(mesh.offered(&from, offer, &**signaling).await?);
                }
            }
            Event::PeerAnswer { from, sdp, tracks } => {
                if let Some(mesh) = &self.mesh {
                    let sdp = self.way.through(&self.stage, &self.place, &sdp);
                    mesh.answered(&from, Answer { sdp, tracks }).await?;
                }
            }
            Event::PeerCandidate { from, candidate, .. } => {
                let candidate = self.way.candidate(&self.stage, &self.place, candidate);
                match (&self.server, &self.mesh) {
                    (Some(server), _) if from.is_empty() => server.candidate(candidate),
                    (_, Some(mesh)) => mesh.candidate(&from, candidate),
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Offers more slots, if more are wanted than there are. A mix needs one slot alone.
    async fn grow(&mut self, audio: u32, video: u32) -> Result<(), String> {
        let wanted =
            SlotPool { audio: audio.max(self.pool.audio), video: video.max(self.pool.video) };
        let wanted = self.place.slots(wanted);
        let (Some(signaling), Some(server)) = (&self.signaling, &self.server) else {
            return Ok(());
        };
        if wanted == self.pool {
            return Ok(());
        }
        server.grow(wanted.audio, wanted.video);
        self.pool = wanted;
        let through = |sdp: &str| self.way.through(&self.stage, &self.place, sdp);
        match negotiate(&**server, &**signaling, &self.session, through).await {
            Err(failure) => Err(format!("could not get more slots: {failure}")),
            Ok(()) => Ok(()),
        }
    }

    async fn sample(&mut self) -> Result<(), String> {
        let none = |error: &dyn fmt::Display| format!("gives no sample: {error}");
        let server = match &self.server {
            Some(server) => Some(server.sample().await.map_err(|error| none(&error))?),
            None => None,
        };
        let mut sample = match (&mut self.mesh, server) {
            (Some(mesh), server) => mesh.sample(server).await.map_err(|error| none(&error))?,
            (None, server) => server.unwrap_or_default(),
        };
        self.first_audio_ms = self.first_audio_ms.or(sample.join_to_first_audio_ms);
        if let Some(server) = self.server.as_ref().filter(|_| self.hears) {
            let heard = server.heard().await.map_err(|error| none(&error))?;
            if heard != MixWindows::default() {
                self.stage.roster(|roster| roster.heard(&self.name, heard));
            }
        }
        sample.participant.clone_from(&self.joined.participant);
        self.stage.sends(&self.place.room, &self.name, &sample);
        mos::fill(&mut sample);
        if let Some(signaling) = &self.signaling {
            // A lost socket has an event of its own.
            let _ = signaling.quality_sample(&sample).await;
        }
        self.stage.sample(&self.name, PersonKind::Bot, sample);
        Ok(())
    }

    /// Connects again, with growing pauses, and resumes the seat.
    fn resume(&self) -> Resuming {
        let (server, audio) = (self.stage.server.clone(), self.place.group.audio);
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
                let cause = match try_resume(&server, audio, &resume).await {
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

async fn try_resume(
    server: &Server,
    audio: AudioTopology,
    resume: &Resume,
) -> Result<Reconnected, SignalingError> {
    // No server that asks whether there is a link keeps a seat.
    let (signaling, incoming) = clients::take_seat(server, audio, false).await?;
    let missed = signaling.resume(resume).await?;
    Ok((signaling, incoming, missed))
}
