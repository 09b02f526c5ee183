//! Putting the server together: sockets, threads, rooms, HTTP; and taking it down.

use crate::auth::Auth;
use crate::config::Config;
use crate::control::{self, Candidates, ControlThread};
use crate::faults::{self, Faults, Part};
use crate::health::{self, Died, STALLED};
use crate::http::{Http, HttpError};
use crate::lane::{ControlHandle, Lane};
use crate::media::{Beside, MediaThread, Upward};
use crate::metrics::Metrics;
use crate::mix;
use crate::places::{self, Places};
use crate::private;
use crate::proxies::Proxies;
use crate::relay;
use crate::reload;
use crate::rooms::{self, Rooms, ShardHandle};
use crate::socket::{SocketOptions, Sockets};
use crate::tcp::Terms;
use net::stream::Listener;
use net::{SocketOptions as UdpOptions, UdpBatchSocket, Waker};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use transport::Shared;

/// How long a draining server waits for its rooms to end by themselves.
const DRAIN: Duration = Duration::from_secs(30);
/// How often the signaling threads are looked after, and from when on they are late.
const SIGNALING_TICK: Duration = Duration::from_millis(50);
const SIGNALING_LATE: Duration = Duration::from_millis(50);

/// Why the server could not start or go on.
#[derive(Debug)]
pub enum ServeError {
    /// HTTP could not be bound or served.
    Http(HttpError),
    /// A media port could not be bound, or its settings do not fit together.
    Media(String),
    /// The settings ask for what the mode does not allow.
    Settings(String),
    /// The system refused a thread or a descriptor.
    System(std::io::Error),
    /// A thread that carries calls died.
    Thread(Died),
}

impl std::fmt::Display for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Http(error) => error.fmt(f),
            Self::Media(text) | Self::Settings(text) => f.write_str(text),
            Self::System(error) => write!(f, "the system refused a resource: {error}"),
            Self::Thread(Died { thread, why }) => {
                write!(
                    f,
                    "the thread {thread} died ({why}), and calls with it: start the server again"
                )
            }
        }
    }
}

impl std::error::Error for ServeError {}

impl From<std::io::Error> for ServeError {
    fn from(error: std::io::Error) -> Self {
        Self::System(error)
    }
}

/// Runs the server until SIGINT, or until SIGTERM has drained it. Logging is the caller's.
///
/// # Errors
/// [`ServeError`] says what could not be bound and what helps.
pub fn run(config: &Config) -> Result<(), ServeError> {
    if !config.faults.is_empty() && !config.development && !config.for_tests {
        let text = "faults are for tests of a development server: start it without --config, or \
                    with --for-tests where it hosts nobody";
        return Err(ServeError::Settings(text.into()));
    }
    if !config.faults.is_empty() {
        tracing::warn!(faults = ?config.faults, "faults are made on purpose: this server must host nobody");
    }
    net::memory::give_back_large_blocks();
    // Bound before anything runs: a port in use is said at once.
    let http = Http::bind(config).map_err(ServeError::Http)?;
    let ports = bind_media(config)?;
    // While there is one thread, and before anything is read from the network.
    match &config.run_as {
        Some(user) => {
            user.take_on().map_err(ServeError::Settings)?;
            tracing::info!(%user, "ports are bound: the process is another user now");
        }
        None if private::is_root() && !config.development => tracing::warn!(
            "the server runs as root, so a fault in it is a fault of the whole machine: start it as another user \
             (deploy/moim.service), or name one under run_as"
        ),
        None => {}
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("signaling")
        .enable_all()
        .build()?;
    runtime.block_on(serve(config, http, ports))
}

/// The sockets and listeners of a shard, one an address family, and the addresses they are reached at.
struct ShardPorts {
    sockets: Vec<UdpBatchSocket>,
    listeners: Vec<Listener>,
    candidates: Vec<Candidates>,
}

fn bind_media(config: &Config) -> Result<Vec<ShardPorts>, ServeError> {
    let media = &config.media;
    for v6 in [false, true] {
        if media.bind.iter().filter(|address| address.is_ipv6() == v6).count() > 1 {
            let text = "media.bind takes one IPv4 and one IPv6 address: list the others under \
                        media.advertise";
            return Err(ServeError::Media(text.into()));
        }
    }
    (0..media.shards)
        .map(|index| {
            let port = if media.port == 0 { 0 } else { media.port + index as u16 };
            let (sockets, listeners, candidates) = (Vec::new(), Vec::new(), Vec::new());
            let mut ports = ShardPorts { sockets, listeners, candidates };
            for address in &media.bind {
                let socket = bind_one(SocketAddr::new(*address, port), config.faults)?;
                let listener = listen(&socket, port == 0)?;
                let reached = reached_at(config, *address)?;
                let udp = SocketAddr::new(reached, socket.local_addr()?.port());
                let tcp = SocketAddr::new(reached, listener.local_addr()?.port());
                ports.candidates.push(Candidates { udp, tcp });
                ports.sockets.push(socket);
                ports.listeners.push(listener);
            }
            Ok(ports)
        })
        .collect()
}

/// Listens on TCP where `socket` is on UDP; where any port will do and this one is taken, on another.
fn listen(socket: &UdpBatchSocket, any: bool) -> Result<Listener, ServeError> {
    let mut address = socket.local_addr()?;
    let mut listener = Listener::bind(address);
    if any && listener.is_err() {
        address.set_port(0);
        listener = Listener::bind(address);
    }
    listener.map_err(|error| {
        let cure = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                "media takes its port on TCP too, for those whose networks let no UDP through, and \
                 another process or http has it: end that, or set media.port to another"
            }
            _ => "mend media.bind and media.port",
        };
        ServeError::Media(format!("{error}; {cure}"))
    })
}

/// The address that goes into candidates for a bound one.
fn reached_at(config: &Config, bound: IpAddr) -> Result<IpAddr, ServeError> {
    let mut advertised = config.media.advertise.iter();
    match advertised.find(|address| address.is_ipv6() == bound.is_ipv6()) {
        Some(address) => Ok(*address),
        None if bound.is_unspecified() => Err(ServeError::Media(format!(
            "media.bind is {bound}, which nobody can send to: name this machine's address under \
             media.advertise, such as advertise: [192.0.2.7]"
        ))),
        None => Ok(bound),
    }
}

fn bind_one(address: SocketAddr, faults: Faults) -> Result<UdpBatchSocket, ServeError> {
    let mut options = UdpOptions { v6_only: true, ..UdpOptions::default() };
    options.recv_buffer = faults.receive_buffer.unwrap_or(options.recv_buffer);
    let wanted = options.recv_buffer;
    let socket = UdpBatchSocket::bind(address, options).map_err(|error| {
        let cure = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another process has this port: end it, or set media.port to another"
            }
            std::io::ErrorKind::AddrNotAvailable => {
                "this machine has no such address: mend media.bind"
            }
            _ => "mend media.bind and media.port",
        };
        ServeError::Media(format!("{error}; {cure}"))
    })?;
    if socket.granted_recv_buffer() < wanted {
        tracing::warn!(
            %address,
            granted = socket.granted_recv_buffer(),
            wanted,
            "small UDP receive buffer: raise net.core.rmem_max, or bursts are lost"
        );
    }
    Ok(socket)
}

async fn serve(config: &Config, http: Http, ports: Vec<ShardPorts>) -> Result<(), ServeError> {
    let metrics = Arc::new(Metrics::new());
    let mut deaths = metrics.health.deaths();
    let shared = Shared::new().map_err(|error| ServeError::System(std::io::Error::other(error)))?;
    let (inputs, inbox) = mpsc::channel(rooms::INPUTS);
    let mut shards = Vec::new();
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let wakers: Vec<Arc<Waker>> =
        ports.iter().map(|_| Waker::new().map(Arc::new)).collect::<std::io::Result<_>>()?;
    let count = wakers.len() as u16;
    let tcp_most = places::shares(config.limits.sockets, wakers.len()).media;
    // As over HTTP: whoever reaches a development server has one address.
    let (each, sockets) = (config.limits.connections_per_address, config.limits.sockets);
    let tcp_each =
        if config.development { tcp_most } else { places::each(tcp_most, each, sockets) };
    let proxies = Proxies::new(&config.http.trusted_proxies);
    let lanes = relay::lanes(&wakers);
    let backlog = config.faults.mixer_backlog.unwrap_or_default();
    let mixers = mix::threads(&wakers, &metrics, backlog);
    let beside = wakers.into_iter().zip(lanes).zip(mixers);
    for (index, (ports, ((waker, lanes), mixer))) in ports.into_iter().zip(beside).enumerate() {
        let (mix_thread, mix, ends) = mixer;
        for Candidates { udp, tcp } in &ports.candidates {
            tracing::info!(shard = index, %udp, %tcp, "media");
        }
        let (control, control_inputs) = control::queue();
        let lane = Lane::default();
        let copies = ports.sockets.iter().map(UdpBatchSocket::try_clone);
        let copies = copies.collect::<std::io::Result<Vec<_>>>()?;
        let upward = Upward { control: control.clone(), rooms: inputs.clone() };
        let beside = Beside { waker, lanes, mix: ends };
        let terms = Terms {
            places: Places::new(tcp_most, tcp_each),
            proxies: proxies.clone(),
            backlog: config.faults.tcp_backlog,
        };
        let (mut thread, media) = MediaThread::new(
            (index, count),
            (ports.sockets, ports.listeners, terms),
            upward,
            beside,
            &metrics,
        )?;
        thread.burn = config.faults.hot_thread.filter(|_| index == 0);
        thread.start_bps = u64::from(config.media.start_kbps) * 1000;
        let control_thread = ControlThread::new(
            index,
            (lane.clone(), control_inputs),
            (inputs.clone(), media.clone()),
            shared.clone(),
            (copies, ports.candidates),
            &metrics,
        );
        let (health, fault) = (&metrics.health, |part| config.faults.of_thread(part, index));
        threads.push(control_thread.spawn(health, fault(Part::Control))?);
        threads.push(thread.spawn(health, fault(Part::Media))?);
        threads.push(mix_thread.spawn(health, fault(Part::Mix))?);
        let control = ControlHandle::new(lane, control);
        shards.push(ShardHandle { media, mix, control });
    }
    drop(inputs);
    let auth = Arc::new(Auth::from_config(config));
    let rooms = Arc::new(Rooms::new(
        shards.clone(),
        config.media.keep_together,
        config.limits.of_rooms(config.development),
        config.mix,
        auth.clone(),
        metrics.clone(),
    ));
    let mut inbox = tokio::spawn(rooms.clone().run_inbox(inbox));
    let options = SocketOptions::from(&config.limits);
    let sockets = Sockets::new(rooms.clone(), options, auth.clone(), metrics.clone());
    // Before anybody can know that it runs: a signal that comes early must not kill it.
    let signals = Signals::take()?;
    let hangup = config.file.clone().map(|file| reload::on_hangup(file, auth, http.certificate()));
    let hangup = hangup.transpose()?.map(tokio::spawn);
    announce(config, &http);
    let watchdog = tokio::spawn(count_missed_ticks(metrics.clone()));
    let keeper = tokio::spawn(give_back_memory());
    if let Some((stall, every)) = config.faults.stalled_signaling {
        faults::stall(stall, every);
    }
    let mut dead = None;
    let ended = async {
        dead = tokio::select! {
            () = signals.ended(rooms.clone()) => None,
            died = deaths.recv() => died,
            ended = &mut inbox => Some(rooms_died(ended)),
        };
        if let Some(Died { thread, why }) = &dead {
            tracing::error!(thread, why, "a thread died: the server ends");
            rooms.end_all("the server has failed");
        }
    };
    let served = http.serve(sockets, metrics.clone(), ended).await;
    rooms.end_all("the server has ended");
    for shard in &shards {
        shard.media.stop();
        shard.mix.stop();
        shard.control.stop();
    }
    inbox.abort();
    watchdog.abort();
    keeper.abort();
    if let Some(hangup) = hangup {
        hangup.abort();
    }
    drop((shards, rooms));
    let joined = tokio::task::spawn_blocking(move || {
        threads.into_iter().all(|thread| thread.join().is_ok())
    });
    let all_well = joined.await.unwrap_or(false);
    // A thread may also die on the way down.
    match dead.or_else(|| deaths.try_recv().ok()) {
        Some(died) => Err(ServeError::Thread(died)),
        None if !all_well => Err(ServeError::System(std::io::Error::other("a thread was lost"))),
        None => served.map_err(ServeError::Http),
    }
}

/// The task that takes to the rooms what the other threads tell; it ends by a panic alone.
fn rooms_died(ended: Result<(), tokio::task::JoinError>) -> Died {
    let panic = ended.err().and_then(|error| error.try_into_panic().ok());
    let why = panic.map_or_else(|| "it ended".into(), |panic| health::reason(&*panic));
    Died { thread: "rooms".into(), why }
}

/// How often it is looked whether much memory is free, and how much is much, in bytes.
const MEMORY_LOOKED_AT: Duration = Duration::from_secs(10);
const MUCH_MEMORY: usize = 4 << 20;

/// Gives memory back to the system that a burst took and nobody needs any more.
async fn give_back_memory() {
    loop {
        tokio::time::sleep(MEMORY_LOOKED_AT).await;
        // Looking is short. A thread for what may take longer starts only where there is something to give.
        if net::memory::free_bytes() < MUCH_MEMORY {
            continue;
        }
        if tokio::task::spawn_blocking(net::memory::give_back_free).await.is_ok_and(|given| given) {
            tracing::debug!("memory was given back to the system");
        }
    }
}

/// Counts the ticks of a timer of the signaling threads, and those that were missed: how long a
/// request may wait before anybody looks at it.
async fn count_missed_ticks(metrics: Arc<Metrics>) {
    let counter = |name, help| metrics.registry.counter(name, help, &[]);
    let due =
        counter("moim_signaling_ticks_total", "Ticks of 50 ms that the signaling loop was due.");
    let missed = counter(
        "moim_signaling_ticks_missed_total",
        "Those of them that it missed: it was over 50 ms late.",
    );
    let over = counter("moim_signaling_ticks_over_5_ms_total", "Those that were over 5 ms late.");
    let worst = metrics.registry.gauge(
        "moim_signaling_delay_worst_us",
        "How late the latest of them was since the start, in microseconds.",
        &[],
    );
    let mut most = Duration::ZERO;
    loop {
        let begin = Instant::now();
        tokio::time::sleep(SIGNALING_TICK).await;
        let late = begin.elapsed().saturating_sub(SIGNALING_TICK);
        over.add(u64::from(late > Duration::from_millis(5)));
        most = most.max(late);
        worst.set(most.as_micros() as i64);
        if late < SIGNALING_LATE {
            count_stalled(&metrics);
        }
        let ticks = begin.elapsed().as_millis() / SIGNALING_TICK.as_millis();
        due.add(ticks.max(1) as u64);
        if begin.elapsed() > SIGNALING_TICK + SIGNALING_LATE {
            missed.add(ticks as u64 - 1);
        }
    }
}

/// Counts the threads that stand still. The caller skips late ticks: then the whole process may have stood still.
fn count_stalled(metrics: &Metrics) {
    for (thread, _) in metrics.health.silent(STALLED) {
        let name = "moim_thread_stalled_ticks_total";
        let help = "Ticks of 50 ms of the signaling loop at which this thread had not come round for 1.5 s.";
        metrics.registry.counter(name, help, &[("thread", &thread)]).add(1);
    }
}

fn announce(config: &Config, http: &Http) {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let base = &config.http.base_path;
    for address in http.addresses() {
        tracing::info!("open {scheme}://{address}{base} in a browser");
    }
    if config.tls.is_none() && http.addresses().iter().any(|address| !address.ip().is_loopback()) {
        tracing::warn!(
            "http.bind reaches beyond this machine without tls: tokens pass in the clear, and browsers give such a page no \
             camera: set tls, or bind 127.0.0.1 behind a proxy that has it"
        );
    }
    let admin = http.admin_addresses();
    for address in admin {
        tracing::info!("metrics and console are at {scheme}://{address}{base}");
    }
    let is_open = config.admin.token.is_none();
    if is_open && admin.iter().any(|address| !address.ip().is_loopback()) {
        tracing::warn!(
            "whoever reaches admin.bind sees metrics and console: bind a loopback or private address, or set \
             admin.token"
        );
    }
}

/// The signals that end a server.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn take() -> std::io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits until the server shall end: at once with SIGINT; with SIGTERM when everybody has left,
    /// after [`DRAIN`], or with a second signal.
    async fn ended(mut self, rooms: Arc<Rooms>) {
        tokio::select! {
            _ = self.interrupt.recv() => return rooms.end_all("the server was stopped"),
            _ = self.terminate.recv() => {}
        }
        rooms.drain();
        tracing::info!(people = rooms.people(), "draining: nobody new comes in");
        let empty = async {
            while rooms.people() > 0 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::select! {
            () = empty => {}
            () = tokio::time::sleep(DRAIN) => {}
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        rooms.end_all("the server was drained");
    }
}
