//! A media thread: sockets, a shard of the engine, and nothing that could hold a packet up.
//!
//! Rooms send [`commands`]; STUN and DTLS of participants go up to the control thread through a bounded queue: what does
//! not fit there is counted, never waited for. Reports to the rooms wait in an outbox while the rooms are behind.

mod counts;
mod round;

use self::counts::{Counts, Left};
use self::round::{Rests, Round};
use crate::commands;
use crate::control::ControlInput;
use crate::health::{Beat, Health, ThreadFault};
use crate::metrics::{Counter, Metrics};
use crate::relay::{Come, FromMixer, LanesIn, LanesOut, MixEnds};
use crate::rooms::RoomInput;
use crate::tcp::{Come as TcpCome, Reader, TcpPort, Terms};
use engine::mix::MixFrame;
use engine::shard::{Datagram, RelayControl, RelayPacket};
use engine::{
    Command, Handled, Now, Outbox, PersonKey, Priority, Report, Shard, ShardIndex, Sink, Subject,
};
use net::{FlushReport, PollFd, RecvBatch, SendBatch, UdpBatchSocket, Waker};
use rtp::TransportAddress;
use rtrb::{Consumer, Producer};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;

/// Slots and rooms of which a report may wait.
const REPORTS: usize = 65_536;
/// Commands carried out in a row: when everybody leaves at once, packets still come through.
const COMMANDS_IN_A_ROW: usize = 16;
/// Connections are read for so long before packets have their turn: whoever closes hundreds at once delays nobody.
const TCP_TURN: Duration = Duration::from_millis(1);
/// Kernel messages read at once, and rounds of reading before other work gets its turn.
const READ_MESSAGES: usize = 32;
const READ_ROUNDS: usize = 4;
/// Datagrams that wait in the send batch before they leave together.
const SEND_DATAGRAMS: usize = 512;
/// How often the counters are handed over to the metrics.
const COUNT_INTERVAL: Duration = Duration::from_millis(200);

/// What a media thread is told.
#[derive(Debug)]
enum MediaInput {
    /// By a room, or by the control thread.
    Command(Command),
    /// STUN or DTLS of the control thread, to a connection of this thread.
    Send { to: SocketAddr, data: Vec<u8> },
}

/// What rooms hold of a media thread.
#[derive(Debug, Clone)]
pub(crate) struct MediaHandle {
    commands: commands::Sender<MediaInput>,
    waker: Arc<Waker>,
    stop: Arc<AtomicBool>,
}

impl MediaHandle {
    /// Of no thread: what it is told is forgotten.
    #[cfg(test)]
    pub(crate) fn idle() -> Self {
        let waker = Arc::new(Waker::new().unwrap());
        Self { commands: commands::queue().0, waker, stop: Arc::default() }
    }

    /// Of a thread that takes a command when this function is called, which says whether there was one.
    #[cfg(test)]
    pub(crate) fn slow() -> (Self, impl FnMut() -> bool) {
        let (sender, commands) = commands::queue();
        (Self { commands: sender, ..Self::idle() }, move || commands.take().is_some())
    }

    /// Sends a command; they arrive in order.
    pub(crate) fn send(&self, command: Command) {
        self.input(MediaInput::Command(command));
    }

    /// Sends a packet of the control thread on TCP, in order with the commands; not where the thread is behind, which this
    /// says. ICE and DTLS send again.
    pub(crate) fn send_on_tcp(&self, to: SocketAddr, data: Vec<u8>) -> bool {
        let goes = !self.is_behind();
        if goes {
            self.input(MediaInput::Send { to, data });
        }
        goes
    }

    /// Whether the thread is so far behind that it gets no new work.
    pub(crate) fn is_behind(&self) -> bool {
        self.commands.is_behind()
    }

    fn input(&self, input: MediaInput) {
        if self.commands.send(input) {
            self.waker.wake();
        }
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// Where a media thread hands up what is not its own.
#[derive(Clone)]
pub(crate) struct Upward {
    pub control: SyncSender<ControlInput>,
    pub rooms: mpsc::Sender<RoomInput>,
}

/// What a media thread shares with threads beside it.
pub(crate) struct Beside {
    /// Wakes this thread.
    pub waker: Arc<Waker>,
    /// To and from other media threads.
    pub lanes: (LanesOut, LanesIn),
    /// To and from the mixer.
    pub mix: MixEnds,
}

/// A media thread before it runs.
pub(crate) struct MediaThread {
    name: String,
    /// Which shard it runs, of how many.
    place: (ShardIndex, u16),
    /// A shard lives on its own thread: it begins and ends there.
    begin: Box<dyn FnOnce(Shard) -> Running + Send>,
    /// A fault for tests: extra work on each packet.
    pub(crate) burn: Option<Duration>,
    /// What a path is taken to carry at first, in bits a second.
    pub(crate) start_bps: u64,
}

/// A media thread at work.
struct Running {
    name: String,
    shard: Shard,
    ports: Ports,
    commands: commands::Receiver<MediaInput>,
    lanes_in: LanesIn,
    mixed: Consumer<FromMixer>,
    waker: Arc<Waker>,
    stop: Arc<AtomicBool>,
    rooms: mpsc::Sender<RoomInput>,
    /// Reports that the rooms have not taken yet.
    reports: Outbox<Subject, Report>,
    counts: Counts,
    /// When the packets of sound in hand arrived.
    sounds: Vec<Instant>,
    /// What came in this round, and how long the thread may rest after it.
    round: Round,
    rests: Rests,
    burn: Option<Duration>,
}

impl MediaThread {
    /// The thread of shard `index` of `shards` with its bound sockets and listeners, one an address family, and the
    /// terms of connections over TCP.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub(crate) fn new(
        (index, shards): (usize, u16),
        (sockets, listeners, Terms { places, proxies, backlog }): (
            Vec<UdpBatchSocket>,
            Vec<net::stream::Listener>,
            Terms,
        ),
        upward: Upward,
        beside: Beside,
        metrics: &Metrics,
    ) -> std::io::Result<(Self, MediaHandle)> {
        let (sender, commands) = commands::queue();
        let Beside { waker, lanes: (lanes_out, lanes_in), mix } = beside;
        let stop = Arc::new(AtomicBool::new(false));
        let handle = MediaHandle { commands: sender, waker: waker.clone(), stop: stop.clone() };
        let name = format!("media-{index}");
        let tcp = TcpPort::new(listeners, (places, proxies), &name, metrics)?.with_backlog(backlog);
        let lanes = (lanes_out, mix.frames);
        let counts = Counts::new(&name, metrics);
        let ports = Ports::new((sockets, tcp), upward.control, lanes, metrics);
        let thread = Self {
            name: name.clone(),
            place: (ShardIndex(index as u16), shards),
            burn: None,
            start_bps: engine::limits::DOWNLINK_START_BPS,
            begin: Box::new(move |shard| Running {
                name,
                shard,
                counts,
                ports,
                commands,
                lanes_in,
                mixed: mix.mixed,
                waker,
                stop,
                rooms: upward.rooms,
                reports: Outbox::new(REPORTS),
                sounds: Vec::with_capacity(1024),
                round: Round::new(Instant::now()),
                rests: Rests { epoch: mix.epoch },
                burn: None,
            }),
        };
        Ok((thread, handle))
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn spawn(
        self,
        health: &Health,
        fault: Option<ThreadFault>,
    ) -> std::io::Result<std::thread::JoinHandle<()>> {
        let Self { name, place: (index, shards), begin, burn, start_bps } = self;
        health.spawn(&name, fault, move |beat| {
            let running = begin(Shard::new(index, shards).starting_at(start_bps));
            Running { burn, ..running }.run(beat);
        })
    }
}

impl Running {
    fn run(mut self, mut beat: Beat) {
        // Sound first: 20 ms of SDP work elsewhere must not hold a packet. Needs a privilege; a
        // server without it works, with longer tails.
        if net::thread::set_current_thread_prompt(-10, Duration::from_micros(100)).is_err() {
            tracing::info!(thread = self.name, "no right to a higher priority");
        }
        // Where the kernel refuses it, waits end up to 50 µs late.
        let _ = net::thread::set_timer_slack(Duration::from_nanos(1));
        let mut reading = RecvBatch::new(READ_MESSAGES);
        let mut count_due = Instant::now();
        let mut work_waits = false;
        while !self.stop.load(Ordering::Acquire) {
            let rest = self.rests.after(&self.round, Instant::now(), self.shard.next_deadline());
            if let Some(rest) = rest.filter(|_| !work_waits) {
                // Commands and mixed packets end it. An error ends it, too: the wait that follows tells it.
                let _ = net::wait(&mut [PollFd::readable(&*self.waker)], Some(rest));
            }
            let tcp_ready = self.wait(work_waits);
            let now = clock();
            self.round = Round::new(now.at);
            beat.round(now.at);
            let mut carried_out = 0;
            while carried_out < COMMANDS_IN_A_ROW
                && let Some(input) = self.commands.take()
            {
                match input {
                    MediaInput::Command(command) => {
                        self.shard.command(command, now, &mut self.ports);
                    }
                    MediaInput::Send { to, data } => self.ports.tcp.send(to, &data),
                }
                carried_out += 1;
            }
            work_waits = carried_out == COMMANDS_IN_A_ROW;
            work_waits |= self.take_from_beside(now);
            for socket in 0..self.ports.sockets.len() {
                self.read(socket, &mut reading);
            }
            if tcp_ready || self.ports.tcp.is_due(now.at) {
                self.round.busy();
                self.read_tcp();
                work_waits |= self.ports.tcp.waits();
            }
            let now = clock();
            self.shard.handle_timeout(now, &mut self.ports);
            self.ports.flush();
            if self.ports.batches.iter().any(SendBatch::is_blocked) {
                self.round.busy();
            }
            self.report();
            if now.at >= count_due {
                count_due = now.at + COUNT_INTERVAL;
                self.counts.publish(self.shard.stats(), &self.ports.take_left());
            }
        }
    }

    /// Takes what other media threads and the mixer handed over; says whether more waits.
    fn take_from_beside(&mut self, now: Now) -> bool {
        let (shard, ports, round) = (&mut self.shard, &mut self.ports, &mut self.round);
        let more = self.lanes_in.take(|come| match come {
            Come::Control(message) => shard.handle_relay_control(message),
            Come::Packet(packet) => {
                round.busy();
                shard.handle_relayed(now, &packet, ports);
            }
        });
        shard.flush(now, ports);
        // No more than the mixer makes while they are sent: a few a room and tick.
        while let Ok(mixed) = self.mixed.pop() {
            match mixed {
                FromMixer::Packet(packet) => {
                    self.shard.handle_mixed(now, &packet, &mut self.ports);
                }
                FromMixer::Bar(bar) => self.shard.handle_bar(now, &bar),
            }
        }
        more
    }

    /// Waits for packets, commands or the next deadline; not at all where work waits already. Says whether
    /// there is something to do for connections.
    fn wait(&self, work_waits: bool) -> bool {
        let timeout = match self.shard.next_deadline() {
            _ if work_waits => Duration::ZERO,
            Some(at) => at.saturating_duration_since(Instant::now()),
            None => COUNT_INTERVAL,
        };
        let timeout = Some(timeout.min(COUNT_INTERVAL));
        let waker = PollFd::readable(&*self.waker);
        let tcp = PollFd::readable(self.ports.tcp.poller());
        let woken = |ready: &mut [PollFd<'_>]| {
            let waited = net::wait(ready, timeout);
            waited.map(|_| (ready[0].is_ready(), ready[1].is_ready()))
        };
        let woken = match self.ports.sockets.as_slice() {
            [] => woken(&mut [waker, tcp]),
            [_] => woken(&mut [waker, tcp, self.ports.awaited(0)]),
            // One an address family, at most.
            [_, _, ..] => woken(&mut [waker, tcp, self.ports.awaited(0), self.ports.awaited(1)]),
        };
        match woken {
            Ok((woken, tcp_ready)) => {
                if woken {
                    self.waker.drain();
                }
                tcp_ready
            }
            Err(error) => {
                tracing::error!(thread = self.name, %error, "waiting for packets failed");
                false
            }
        }
    }

    /// Reads what is there, in a few rounds so that other work gets its turn.
    fn read(&mut self, socket: usize, reading: &mut RecvBatch) {
        for _ in 0..READ_ROUNDS {
            match self.ports.sockets[socket].recv(reading) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => {
                    // An ICMP answer to a packet of ours; the next read goes on.
                    tracing::debug!(thread = self.name, %error, "reading packets");
                    return;
                }
            }
            let full = reading.is_full();
            if let Some(each) = self.burn {
                crate::faults::burn(each * reading.datagrams().count() as u32);
            }
            self.ports.reading = socket;
            let batch = reading.datagrams().map(|datagram| Datagram {
                source: datagram.src.into(),
                data: datagram.data,
                arrival: datagram.arrival,
            });
            let (counts, sounds) = (&mut self.counts, &mut self.sounds);
            let round = &mut self.round;
            self.shard.handle_batch(clock(), batch, &mut self.ports, |datagram, outcome| {
                round.note(outcome);
                counts.packets_in += 1;
                counts.bytes_in += datagram.data.len() as u64;
                if outcome == Handled::Audio {
                    sounds.push(datagram.arrival);
                }
            });
            self.leave();
            if !full {
                return;
            }
        }
        self.round.busy();
    }

    /// Reads the connections that have something.
    fn read_tcp(&mut self) {
        let begin = Instant::now();
        self.ports.tcp.serve(begin);
        while begin.elapsed() < TCP_TURN
            && let Some((index, peer, mut reader)) = self.ports.tcp.lend_reader(begin)
        {
            let now = clock();
            let come = self.take_frames(&mut reader, TransportAddress::tcp(peer), now);
            self.shard.flush(now, &mut self.ports);
            self.ports.tcp.give_back(index, reader, come, now.at);
            self.leave();
        }
    }

    fn take_frames(&mut self, reader: &mut Reader, source: TransportAddress, now: Now) -> TcpCome {
        let Self { shard, ports, counts, sounds, .. } = self;
        // Its packets come and go by the address that the others know of this thread.
        ports.reading =
            ports.families[usize::from(source.socket.is_ipv6())].unwrap_or(ports.reading);
        reader.read(|data| {
            counts.packets_in += 1;
            counts.bytes_in += data.len() as u64;
            let frame = Datagram { source, data, arrival: now.at };
            let handled = shard.handle_datagram(now, &frame, ports);
            if handled == Handled::Audio {
                sounds.push(frame.arrival);
            }
            handled.is_authentic()
        })
    }

    /// What was made of a batch leaves.
    fn leave(&mut self) {
        self.ports.flush();
        let left = Instant::now();
        for arrived in self.sounds.drain(..) {
            let residence = left.saturating_duration_since(arrived);
            self.counts.residence.observe(residence.as_secs_f64());
        }
    }

    /// Hands reports over; where the rooms are behind, again in the next round.
    fn report(&mut self) {
        for report in self.shard.take_reports() {
            if self.reports.put(report.subject(), report).is_err() {
                self.counts.reports_dropped.inc();
            }
        }
        self.reports.hand_over(|report| match self.rooms.try_reserve() {
            Ok(place) => {
                place.send(RoomInput::Report(report));
                Ok(())
            }
            Err(_) => Err(report),
        });
    }
}

/// The sockets of a thread and what waits to leave through them.
struct Ports {
    sockets: Vec<UdpBatchSocket>,
    batches: Vec<SendBatch>,
    /// Index of the socket for IPv4 and for IPv6.
    families: [Option<usize>; 2],
    /// The socket that is being read.
    reading: usize,
    /// What a slot was lent of last.
    lent: Lent,
    tcp: TcpPort,
    flushed: FlushReport,
    lanes: LanesOut,
    frames: Producer<MixFrame>,
    control: SyncSender<ControlInput>,
    control_dropped: Counter,
}

/// Which way a packet leaves.
#[derive(Clone, Copy)]
enum Lent {
    Socket(usize),
    Tcp,
}

impl Ports {
    fn new(
        (sockets, tcp): (Vec<UdpBatchSocket>, TcpPort),
        control: SyncSender<ControlInput>,
        (lanes, frames): (LanesOut, Producer<MixFrame>),
        metrics: &Metrics,
    ) -> Self {
        let of =
            |v6: bool| sockets.iter().position(|s| s.local_addr().is_ok_and(|a| a.is_ipv6() == v6));
        Self {
            families: [of(false), of(true)],
            batches: sockets.iter().map(|_| SendBatch::new(SEND_DATAGRAMS)).collect(),
            sockets,
            reading: 0,
            lent: Lent::Socket(0),
            tcp,
            flushed: FlushReport::default(),
            lanes,
            frames,
            control,
            control_dropped: metrics.drops("media", "control_queue_full"),
        }
    }

    /// What a socket is waited for: packets, and room where some wait to leave.
    fn awaited(&self, socket: usize) -> PollFd<'_> {
        match self.batches[socket].is_blocked() {
            true => PollFd::readable_or_writable(&self.sockets[socket]),
            false => PollFd::readable(&self.sockets[socket]),
        }
    }

    /// What left since this was last asked.
    fn take_left(&mut self) -> Left {
        let kernel_drops = self.sockets.iter().filter_map(|s| s.kernel_drops().ok()).sum();
        Left { flushed: std::mem::take(&mut self.flushed), tcp: self.tcp.take_sent(), kernel_drops }
    }

    fn flush(&mut self) {
        for (batch, socket) in self.batches.iter_mut().zip(&self.sockets) {
            if !batch.is_empty() {
                self.flushed += batch.flush_now(socket);
            }
        }
        self.tcp.flush();
        self.lanes.flush();
    }
}

impl Sink for Ports {
    fn has_room(&self, destination: TransportAddress, priority: Priority) -> bool {
        if destination.is_tcp() {
            return self.tcp.has_room(destination.socket, priority);
        }
        let family = self.families[usize::from(destination.socket.is_ipv6())];
        // Sound may fill what waits for the kernel to its end, pictures half of it.
        family.is_some_and(|at| priority == Priority::High || !self.batches[at].is_behind())
    }

    fn slot(&mut self, destination: TransportAddress, priority: Priority) -> Option<&mut [u8]> {
        let (tcp, destination) = (destination.is_tcp(), destination.socket);
        if tcp {
            self.lent = Lent::Tcp;
            return self.tcp.lend(destination, priority);
        }
        let lent = self.families[usize::from(destination.is_ipv6())]?;
        self.lent = Lent::Socket(lent);
        let batch = &mut self.batches[lent];
        if batch.is_full() {
            self.flushed += batch.flush_now(&self.sockets[lent]);
        }
        if priority == Priority::Low && batch.is_behind() {
            return None;
        }
        batch.lend(destination)
    }

    fn commit(&mut self, len: usize) {
        match self.lent {
            Lent::Socket(lent) => self.batches[lent].commit_lent(len),
            Lent::Tcp => self.tcp.commit(len),
        }
    }

    fn relay_packet(&mut self, to: ShardIndex, packet: &RelayPacket<'_>) -> bool {
        self.lanes.packet(to, packet)
    }

    fn relay_control(&mut self, to: ShardIndex, message: RelayControl) {
        self.lanes.control(to, message);
    }

    fn mix(&mut self, frame: &MixFrame) -> bool {
        self.frames.push(*frame).is_ok()
    }

    fn control(&mut self, person: PersonKey, source: TransportAddress, data: &[u8]) {
        let (socket, data) = (self.reading, data.to_vec());
        let datagram = ControlInput::Datagram { person, source, socket, data };
        if self.control.try_send(datagram).is_err() {
            self.control_dropped.inc();
        }
    }
}

/// The engine's time.
fn clock() -> Now {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { at: Instant::now(), unix }
}
