//! Media on TCP, for people whose networks let no UDP through: the connections of one media thread.
//!
//! Each carries STUN, DTLS and media in frames (RFC 4571). What waits for one is bounded, sound apart from
//! pictures: where a connection is behind, pictures wait for a later keyframe, and sound overtakes what of them
//! is still here.

use crate::metrics::{Counter, Gauge, Metrics};
use crate::places::{Full, Places};
use engine::Priority;
use engine::limits::MAX_DATAGRAM;
use net::framing::{Decoder, FrameError, HEADER_LEN};
use net::stream::Listener;
use net::{Event, Events, Poller};
use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections accepted in a row before packets have their turn.
const ACCEPTS: usize = 64;
/// Reads of one connection in a row.
const READS: usize = 8;
/// A connection that has carried nothing authentic so long after it was accepted is nobody's: time for ICE and
/// DTLS over a slow network.
const UNPROVEN: Duration = Duration::from_secs(15);
/// ICE asks every few seconds whether the other side is there: a participant who is silent for so long is gone.
const IDLE: Duration = Duration::from_secs(30);
/// How often such are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// With so many bytes of pictures waiting a connection is behind…
const BEHIND_BYTES: usize = 128 << 10;
/// …until no more than so many are left.
const CAUGHT_UP_BYTES: usize = 16 << 10;
/// What one batch of packets adds once a connection is behind, or full.
const BATCH_BYTES: usize = 128 << 10;
/// Most bytes of pictures.
const MAX_PICTURE_BYTES: usize = BEHIND_BYTES + BATCH_BYTES;
/// Most bytes of sound and control, some 500 packets.
const MAX_SOUND_BYTES: usize = 64 << 10;
/// Handed to the kernel at a time, pictures at the end: what is in there, sound cannot overtake.
const WRITE_BYTES: usize = 16 << 10;

/// Token of the first connection; those below are listeners.
const FIRST: u64 = 16;

/// The connections of a media thread.
pub(crate) struct TcpPort {
    listeners: Vec<Listener>,
    /// Those that wait for a descriptor.
    resting: Vec<usize>,
    poller: Poller,
    events: Events,
    connections: Vec<Option<Connection>>,
    by_peer: HashMap<SocketAddr, usize>,
    places: Places,
    free: Vec<usize>,
    /// Who has something to read.
    readable: VecDeque<usize>,
    /// Who got something to write since the last flush.
    written: Vec<usize>,
    lent: Option<(usize, Priority)>,
    scratch: Box<[u8; MAX_DATAGRAM]>,
    /// Packets and bytes queued since they were taken.
    sent: (u64, u64),
    /// A fault made on purpose: so many bytes wait for a connection, sound among pictures, before anything is dropped.
    backlog: Option<usize>,
    sweep_due: Instant,
    counts: Counts,
}

struct Connection {
    peer: SocketAddr,
    stream: Arc<TcpStream>,
    /// None while it is lent.
    reader: Option<Box<Reader>>,
    /// Framed packets that wait.
    sound: VecDeque<u8>,
    pictures: VecDeque<u8>,
    /// What goes to the kernel next, from `written` on.
    out: Vec<u8>,
    written: usize,
    /// The kernel takes no more for now.
    blocked: bool,
    behind: bool,
    /// It is in the list of those who got something.
    listed: bool,
    /// It is closed then, unless something authentic comes before.
    until: Instant,
}

/// What comes in on a connection.
pub(crate) struct Reader {
    stream: Arc<TcpStream>,
    decoder: Decoder,
}

struct Counts {
    open: Gauge,
    waiting: Gauge,
    refused: Counter,
    of_address: Counter,
    silent: Counter,
    bad_frame: Counter,
    too_much: Counter,
    sent: Counter,
    received: Counter,
}

impl TcpPort {
    /// The connections that come to `listeners`, none yet, as many as there are `places`.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub(crate) fn new(
        listeners: Vec<Listener>,
        places: Places,
        thread: &str,
        metrics: &Metrics,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        for (token, listener) in listeners.iter().enumerate() {
            poller.add(listener, token as u64)?;
        }
        let counter = |name, help| metrics.registry.counter(name, help, &[("thread", thread)]);
        Ok(Self {
            listeners,
            resting: Vec::new(),
            poller,
            events: Events::with_capacity(256),
            connections: Vec::new(),
            by_peer: HashMap::new(),
            places,
            free: Vec::new(),
            readable: VecDeque::new(),
            written: Vec::new(),
            lent: None,
            scratch: Box::new([0; MAX_DATAGRAM]),
            sent: (0, 0),
            backlog: None,
            sweep_due: Instant::now(),
            counts: Counts {
                open: metrics.registry.gauge(
                    "moim_tcp_connections",
                    "Connections that carry media or may come to.",
                    &[("thread", thread)],
                ),
                waiting: metrics.registry.gauge(
                    "moim_tcp_waiting_bytes",
                    "Bytes that waited for TCP connections a second ago at most, beside what the kernel holds.",
                    &[("thread", thread)],
                ),
                refused: metrics.drops("tcp", "too_many_connections"),
                of_address: metrics.drops("tcp", "too_many_of_address"),
                silent: metrics.drops("tcp", "silent_connection"),
                bad_frame: metrics.drops("tcp", "bad_frame"),
                too_much: metrics.drops("tcp", "queue_full"),
                sent: counter("moim_tcp_packets_out_total", "Packets handed to TCP."),
                received: counter("moim_tcp_packets_in_total", "Packets that came by TCP."),
            },
        })
    }

    /// The same with a fault, if one is asked for: nothing is dropped for a connection that is behind until so many bytes wait
    /// for it, in the order in which they came.
    pub(crate) fn with_backlog(self, backlog: Option<usize>) -> Self {
        Self { backlog, ..self }
    }

    /// Readable where there is something to do.
    pub(crate) fn poller(&self) -> &Poller {
        &self.poller
    }

    /// Whether it is time to look for connections that nobody uses.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.sweep_due
    }

    /// Accepts who comes, writes where there is room again, and notes who has something to read.
    pub(crate) fn serve(&mut self, now: Instant) {
        let mut events = std::mem::replace(&mut self.events, Events::with_capacity(1));
        if self.poller.wait(&mut events, Some(Duration::ZERO)).is_ok() {
            for event in events.iter() {
                self.event(event, now);
            }
        }
        self.events = events;
        if now >= self.sweep_due {
            self.sweep_due = now + SWEEP;
            self.sweep(now);
        }
    }

    fn event(&mut self, event: Event, now: Instant) {
        if event.token < FIRST {
            return self.accept(event.token as usize, now);
        }
        let index = (event.token - FIRST) as usize;
        let Some(Some(_)) = self.connections.get(index) else { return };
        if event.writable {
            self.write(index, true);
        }
        if event.readable {
            self.readable.push_back(index);
        }
    }

    fn accept(&mut self, listener: usize, now: Instant) {
        for _ in 0..ACCEPTS {
            let (stream, peer) = match self.listeners[listener].accept() {
                Ok(Some(accepted)) => accepted,
                Ok(None) => return,
                // Who hung up meanwhile.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return self.rest(listener, &error),
            };
            match self.places.take(peer.ip()) {
                Ok(()) => {}
                Err(Full::All) => {
                    self.counts.refused.inc();
                    continue;
                }
                Err(Full::Address) => {
                    self.counts.of_address.inc();
                    continue;
                }
            }
            let index = self.free.pop().unwrap_or(self.connections.len());
            if self.poller.add(&stream, FIRST + index as u64).is_err() {
                self.counts.refused.inc();
                self.places.give_back(peer.ip());
                self.free.extend((index < self.connections.len()).then_some(index));
                continue;
            }
            let stream = Arc::new(stream);
            let decoder = Decoder::new(MAX_DATAGRAM);
            let connection = Connection {
                peer,
                reader: Some(Box::new(Reader { stream: stream.clone(), decoder })),
                stream,
                sound: VecDeque::new(),
                pictures: VecDeque::new(),
                out: Vec::new(),
                written: 0,
                blocked: false,
                behind: false,
                listed: false,
                until: now + UNPROVEN,
            };
            match self.connections.get_mut(index) {
                Some(place) => *place = Some(connection),
                None => self.connections.push(Some(connection)),
            }
            self.by_peer.insert(peer, index);
            self.counts.open.add(1);
        }
    }

    /// There is no descriptor for who waits: who comes waits until the next sweep.
    fn rest(&mut self, listener: usize, error: &io::Error) {
        self.counts.refused.inc();
        tracing::warn!(%error, "no connection of media can be accepted");
        if self.poller.remove(&self.listeners[listener]).is_ok() {
            self.resting.push(listener);
        }
    }

    /// Lends what comes in on the next connection that has something to read, and says who that is;
    /// [`Self::give_back`] takes it again.
    pub(crate) fn lend_reader(&mut self) -> Option<(usize, SocketAddr, Box<Reader>)> {
        while let Some(index) = self.readable.pop_front() {
            if let Some(Some(connection)) = self.connections.get_mut(index)
                && let Some(reader) = connection.reader.take()
            {
                return Some((index, connection.peer, reader));
            }
        }
        None
    }

    /// Takes back what was lent, and what was made of what came: only something authentic lets the connection
    /// live on.
    pub(crate) fn give_back(
        &mut self,
        index: usize,
        reader: Box<Reader>,
        come: Come,
        now: Instant,
    ) {
        self.counts.received.add(come.packets);
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        connection.reader = Some(reader);
        if come.authentic {
            connection.until = now + IDLE;
        }
        if let Some(end) = come.end {
            if let ReadEnd::BadFrame(error) = end {
                self.counts.bad_frame.inc();
                let peer = connection.peer;
                tracing::debug!(%peer, %error, "a connection of no media is closed");
            }
            self.close(index);
        }
    }

    /// Whether there is room for a packet to this one.
    pub(crate) fn has_room(&self, to: SocketAddr, priority: Priority) -> bool {
        let Some(connection) = self.connection(to) else { return false };
        match (priority, self.backlog) {
            (_, Some(most)) => connection.pictures.len() + BATCH_BYTES <= most,
            (Priority::High, None) => {
                connection.sound.len() + MAX_DATAGRAM + HEADER_LEN <= MAX_SOUND_BYTES
            }
            (Priority::Low, None) => !connection.behind,
        }
    }

    fn connection(&self, peer: SocketAddr) -> Option<&Connection> {
        self.connections[*self.by_peer.get(&peer)?].as_ref()
    }

    /// Lends room for a packet; none where the connection is gone or takes no more.
    pub(crate) fn lend(&mut self, to: SocketAddr, priority: Priority) -> Option<&mut [u8]> {
        self.lent = None;
        let index = *self.by_peer.get(&to)?;
        let connection = self.connections[index].as_ref()?;
        // In one queue nothing overtakes.
        let priority = if self.backlog.is_some() { Priority::Low } else { priority };
        let (waiting, most) = match priority {
            Priority::High => (connection.sound.len(), MAX_SOUND_BYTES),
            Priority::Low => (connection.pictures.len(), self.backlog.unwrap_or(MAX_PICTURE_BYTES)),
        };
        if waiting + MAX_DATAGRAM + HEADER_LEN > most {
            self.counts.too_much.inc();
            return None;
        }
        self.lent = Some((index, priority));
        Some(&mut self.scratch[..])
    }

    /// Queues the first `len` bytes of what was lent last.
    pub(crate) fn commit(&mut self, len: usize) {
        let Some((index, priority)) = self.lent.take() else { return };
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        let queue = match priority {
            Priority::High => &mut connection.sound,
            Priority::Low => &mut connection.pictures,
        };
        queue.extend((len as u16).to_be_bytes());
        queue.extend(&self.scratch[..len]);
        connection.behind |= connection.pictures.len() >= BEHIND_BYTES;
        if !std::mem::replace(&mut connection.listed, true) {
            self.written.push(index);
        }
        self.sent.0 += 1;
        self.sent.1 += len as u64;
    }

    /// Takes how many packets, and bytes of them, were queued since the last time.
    pub(crate) fn take_sent(&mut self) -> (u64, u64) {
        let sent = std::mem::take(&mut self.sent);
        self.counts.sent.add(sent.0);
        sent
    }

    /// Queues a packet of the control thread; one to a connection that is gone is nothing.
    pub(crate) fn send(&mut self, to: SocketAddr, packet: &[u8]) {
        let room = self.lend(to, Priority::High).and_then(|room| room.get_mut(..packet.len()));
        if let Some(room) = room {
            room.copy_from_slice(packet);
            self.commit(packet.len());
        }
    }

    /// Writes what was queued.
    pub(crate) fn flush(&mut self) {
        for at in 0..self.written.len() {
            let index = self.written[at];
            if let Some(Some(connection)) = self.connections.get_mut(index) {
                connection.listed = false;
                self.write(index, false);
            }
        }
        self.written.clear();
    }

    /// Writes what waits for a connection. One that is blocked waits until the poller says that it is `writable`.
    fn write(&mut self, index: usize, writable: bool) {
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        let before = connection.blocked;
        if before && !writable {
            return;
        }
        connection.blocked = false;
        if connection.write().is_err() {
            return self.close(index);
        }
        // Only a change costs a system call. Interest that stays would wake the thread without end.
        if connection.blocked != before {
            let token = FIRST + index as u64;
            let _ = self.poller.set_writable(&*connection.stream, token, connection.blocked);
        }
    }

    fn sweep(&mut self, now: Instant) {
        for listener in std::mem::take(&mut self.resting) {
            if self.poller.add(&self.listeners[listener], listener as u64).is_err() {
                self.resting.push(listener);
            }
        }
        for index in 0..self.connections.len() {
            if self.connections[index].as_ref().is_some_and(|c| c.until <= now) {
                self.counts.silent.inc();
                self.close(index);
            }
        }
        let waiting = self.connections.iter().flatten().map(Connection::waiting);
        self.counts.waiting.set(waiting.sum::<usize>() as i64);
    }

    fn close(&mut self, index: usize) {
        let Some(connection) = self.connections[index].take() else { return };
        let _ = self.poller.remove(&*connection.stream);
        let _ = connection.stream.shutdown(std::net::Shutdown::Both);
        // A newer connection of the same address may have the entry.
        if self.by_peer.get(&connection.peer) == Some(&index) {
            self.by_peer.remove(&connection.peer);
        }
        self.places.give_back(connection.peer.ip());
        self.free.push(index);
        self.counts.open.add(-1);
    }
}

impl Connection {
    /// Bytes that the kernel has not taken yet.
    fn waiting(&self) -> usize {
        self.sound.len() + self.pictures.len() + self.out.len() - self.written
    }

    /// Hands what waits to the kernel, as much as it takes.
    fn write(&mut self) -> io::Result<()> {
        loop {
            if self.written == self.out.len() && !self.fill() {
                return Ok(());
            }
            match (&*self.stream).write(&self.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Puts together what goes to the kernel next: all sound, then pictures, packet by packet. Says whether there
    /// is any.
    fn fill(&mut self) -> bool {
        self.out.clear();
        self.written = 0;
        take(&mut self.sound, usize::MAX, &mut self.out);
        take(&mut self.pictures, WRITE_BYTES, &mut self.out);
        self.behind &= self.pictures.len() > CAUGHT_UP_BYTES;
        !self.out.is_empty()
    }
}

/// Moves framed packets from the front of `queue` until `out` has `enough` bytes.
fn take(queue: &mut VecDeque<u8>, enough: usize, out: &mut Vec<u8>) {
    let mut len = 0;
    while len < queue.len() && out.len() + len < enough {
        // Only whole packets are queued.
        len += HEADER_LEN + usize::from(u16::from_be_bytes([queue[len], queue[len + 1]]));
    }
    let (front, back) = queue.as_slices();
    let of_front = len.min(front.len());
    out.extend_from_slice(&front[..of_front]);
    out.extend_from_slice(&back[..len - of_front]);
    queue.drain(..len);
}

/// Why a connection is read no more.
#[derive(Debug)]
pub(crate) enum ReadEnd {
    /// The other side closed it, or it broke.
    Closed,
    /// What came is no packet: nothing after it can be told apart.
    BadFrame(FrameError),
}

/// What came on a connection in one turn.
#[derive(Debug, Default)]
pub(crate) struct Come {
    packets: u64,
    /// One of them was shown to come from a participant.
    authentic: bool,
    end: Option<ReadEnd>,
}

impl Reader {
    /// Reads what is there, in a few rounds, and shows each packet; `packet` says whether it was authentic.
    pub(crate) fn read(&mut self, mut packet: impl FnMut(&[u8]) -> bool) -> Come {
        let mut come = Come::default();
        come.end = self.read_into(&mut come, &mut packet).err();
        come
    }

    fn read_into(
        &mut self,
        come: &mut Come,
        packet: &mut impl FnMut(&[u8]) -> bool,
    ) -> Result<(), ReadEnd> {
        for _ in 0..READS {
            match (&*self.stream).read(self.decoder.spare()) {
                Ok(0) => return Err(ReadEnd::Closed),
                Ok(count) => self.decoder.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(ReadEnd::Closed),
            }
            while let Some(frame) = self.decoder.next_frame().map_err(ReadEnd::BadFrame)? {
                come.packets += 1;
                come.authentic |= packet(frame);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::PollFd;

    /// First byte of a packet that the tests take for authentic.
    const AUTHENTIC: u8 = 0x90;

    struct World {
        port: TcpPort,
        client: TcpStream,
        peer: SocketAddr,
    }

    impl World {
        fn new() -> Self {
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let peer = client.local_addr().unwrap();
            let port = TcpPort::new(vec![listener], Places::new(8, 2), "media-0", &Metrics::new());
            let port = port.unwrap();
            let mut world = Self { port, client, peer };
            while world.port.by_peer.is_empty() {
                world.wait();
            }
            world
        }

        /// Waits for something to do, and does it.
        fn wait(&mut self) {
            let mut fds = [PollFd::readable(self.port.poller())];
            net::wait(&mut fds, Some(Duration::from_millis(100))).unwrap();
            self.port.serve(Instant::now());
        }

        fn queue(&mut self, priority: Priority, len: usize, fill: u8) -> bool {
            let Some(room) = self.port.lend(self.peer, priority) else { return false };
            room[..len].fill(fill);
            self.port.commit(len);
            true
        }

        fn read(&mut self) -> (Vec<Vec<u8>>, Option<String>) {
            let mut packets = Vec::new();
            let mut end = None;
            while let Some((index, peer, mut reader)) = self.port.lend_reader() {
                assert_eq!(peer, self.peer);
                let come = reader.read(|packet| {
                    packets.push(packet.to_vec());
                    packet.first() == Some(&AUTHENTIC)
                });
                end = come.end.as_ref().map(|end| format!("{end:?}"));
                self.port.give_back(index, reader, come, Instant::now());
            }
            (packets, end)
        }
    }

    /// The next packets as the other side reads them: first byte and length.
    fn frames(mut client: &TcpStream, count: usize) -> Vec<(u8, usize)> {
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut frame = || {
            let mut head = [0; 2];
            client.read_exact(&mut head).unwrap();
            let mut packet = vec![0; usize::from(u16::from_be_bytes(head))];
            client.read_exact(&mut packet).unwrap();
            (packet[0], packet.len())
        };
        (0..count).map(|_| frame()).collect()
    }

    #[test]
    fn packets_go_both_ways_whole() {
        let mut world = World::new();
        world.client.write_all(&[0, 2, 7, 8, 0, 1]).unwrap();
        world.wait();
        assert_eq!(world.read().0, [vec![7, 8]]);
        world.client.write_all(&[9]).unwrap();
        world.wait();
        assert_eq!(world.read().0, [vec![9]]);
        assert!(world.queue(Priority::Low, 1200, 1) && world.queue(Priority::High, 92, 2));
        world.port.flush();
        assert_eq!(frames(&world.client, 2), [(2, 92), (1, 1200)], "sound first");
    }

    #[test]
    fn who_does_not_read_is_behind_with_bounded_memory_and_hears_before_he_sees() {
        let mut world = World::new();
        let mut pictures = 0;
        while world.port.has_room(world.peer, Priority::Low) {
            assert!(world.queue(Priority::Low, 1200, 1));
            world.port.flush();
            pictures += 1;
            assert!(pictures < 100_000, "a connection that nobody reads must fall behind");
        }
        assert!(world.port.has_room(world.peer, Priority::High), "sound goes on");
        // Pictures that come all the same, and sound, find an end as well.
        while world.queue(Priority::Low, 1200, 1) {
            pictures += 1;
        }
        let mut sounds = 0;
        while world.queue(Priority::High, 92, 2) {
            sounds += 1;
        }
        let connection = world.port.connection(world.peer).unwrap();
        assert!((BEHIND_BYTES..=MAX_PICTURE_BYTES).contains(&connection.pictures.len()));
        assert!(connection.sound.len() <= MAX_SOUND_BYTES);
        let waited_here = connection.pictures.len() / 1202;
        // The client reads again, and all that was taken comes.
        let client = world.client.try_clone().unwrap();
        let reader = std::thread::spawn(move || frames(&client, pictures + sounds));
        while !reader.is_finished() {
            world.wait();
        }
        let found = reader.join().unwrap();
        let last_sound = found.iter().rposition(|(fill, _)| *fill == 2).unwrap();
        assert_eq!(found.len() - 1 - last_sound, waited_here, "sound overtakes what waits here");
        assert!(world.port.has_room(world.peer, Priority::Low), "he has caught up");
    }

    #[test]
    fn with_the_fault_all_waits_in_one_queue_and_its_length_is_told() {
        let mut world = World::new();
        const MOST: usize = 2 << 20;
        world.port.backlog = Some(MOST);
        let mut packets = 0;
        let of = |number: usize| match number % 2 {
            0 => (Priority::Low, 1200, 1),
            _ => (Priority::High, 92, 2),
        };
        while world.port.has_room(world.peer, Priority::Low) {
            let (priority, len, fill) = of(packets);
            assert!(world.queue(priority, len, fill));
            world.port.flush();
            packets += 1;
            assert!(packets < 100_000, "the queue must find an end");
        }
        assert!(!world.port.has_room(world.peer, Priority::High), "sound has no queue of its own");
        let connection = world.port.connection(world.peer).unwrap();
        assert!(connection.pictures.len() > MAX_PICTURE_BYTES && connection.sound.is_empty());
        assert!(connection.pictures.len() <= MOST);
        // What is under way in this batch has room still: it has a number.
        for _ in 0..100 {
            let (priority, len, fill) = of(packets);
            assert!(world.queue(priority, len, fill));
            packets += 1;
        }
        world.port.serve(Instant::now() + SWEEP);
        let waiting = world.port.connection(world.peer).unwrap().waiting();
        assert_eq!(world.port.counts.waiting.get(), waiting as i64);
        let client = world.client.try_clone().unwrap();
        let reader = std::thread::spawn(move || frames(&client, packets));
        while !reader.is_finished() {
            world.wait();
        }
        let fills: Vec<u8> = reader.join().unwrap().into_iter().map(|(fill, _)| fill).collect();
        let in_order = fills.iter().enumerate().all(|(at, fill)| usize::from(*fill) == 1 + at % 2);
        assert!(in_order, "nothing overtakes");
    }

    #[test]
    fn who_finds_no_descriptor_is_waited_for_without_haste() {
        let mut world = World::new();
        world.port.rest(0, &io::Error::from_raw_os_error(24));
        let waiting = TcpStream::connect(world.port.listeners[0].local_addr().unwrap()).unwrap();
        let mut fds = [PollFd::readable(world.port.poller())];
        assert_eq!(net::wait(&mut fds, Some(Duration::from_millis(20))).unwrap(), 0, "no haste");
        world.port.serve(Instant::now() + SWEEP);
        world.wait();
        assert!(world.port.by_peer.contains_key(&waiting.local_addr().unwrap()));
    }

    #[test]
    fn nonsense_and_silence_end_a_connection() {
        let mut world = World::new();
        world.client.write_all(&[0xff, 0xff, 1, 2, 3]).unwrap();
        world.wait();
        let (packets, end) = world.read();
        assert!(
            packets.is_empty() && end.as_deref().is_some_and(|end| end.starts_with("BadFrame")),
            "{end:?}"
        );
        assert!(!world.port.has_room(world.peer, Priority::High) && world.port.by_peer.is_empty());
        assert!(!world.queue(Priority::High, 10, 1), "a connection that is gone takes nothing");

        let mut world = World::new();
        world.port.serve(Instant::now() + UNPROVEN + SWEEP);
        assert!(world.port.by_peer.is_empty());
    }

    #[test]
    fn a_connection_that_was_blocked_and_drained_leaves_the_poller_quiet() {
        let mut world = World::new();
        let mut packets = 0;
        while world.port.has_room(world.peer, Priority::Low) {
            assert!(world.queue(Priority::Low, 1200, 1));
            world.port.flush();
            packets += 1;
        }
        assert!(world.port.connection(world.peer).unwrap().blocked);
        let client = world.client.try_clone().unwrap();
        let reader = std::thread::spawn(move || frames(&client, packets));
        while !reader.is_finished() {
            world.wait();
        }
        reader.join().unwrap();
        world.wait();
        assert!(!world.port.connection(world.peer).unwrap().blocked);
        let mut fds = [PollFd::readable(world.port.poller())];
        let ready = net::wait(&mut fds, Some(Duration::from_millis(50))).unwrap();
        assert_eq!(ready, 0, "nothing is to be done");
        // It works as before: what is queued goes out, and nothing is waited for.
        assert!(world.queue(Priority::High, 92, 2));
        world.port.flush();
        assert_eq!(frames(&world.client, 1), [(2, 92)]);
        let mut fds = [PollFd::readable(world.port.poller())];
        assert_eq!(net::wait(&mut fds, Some(Duration::from_millis(50))).unwrap(), 0);
    }

    #[test]
    fn an_old_connection_does_not_take_the_entry_of_a_new_one_with_it() {
        let mut world = World::new();
        // The peer's old connection broke without a word, and its new one has the same port.
        let second = TcpStream::connect(world.port.listeners[0].local_addr().unwrap()).unwrap();
        let new = second.local_addr().unwrap();
        while world.port.by_peer.len() < 2 {
            world.wait();
        }
        let old = world.port.by_peer[&world.peer];
        let index = world.port.by_peer.remove(&new).unwrap();
        world.port.connections[index].as_mut().unwrap().peer = world.peer;
        world.port.by_peer.insert(world.peer, index);
        world.port.close(old);
        assert!(world.queue(Priority::High, 92, 2), "the new connection is known");
        world.port.flush();
        assert_eq!(frames(&second, 1), [(2, 92)]);
    }

    #[test]
    fn only_what_is_authentic_lets_a_connection_live_on() {
        let mut world = World::new();
        world.client.write_all(&[0, 1, 7]).unwrap();
        world.wait();
        assert_eq!(world.read().0, [vec![7]]);
        world.port.serve(Instant::now() + UNPROVEN + SWEEP);
        assert!(world.port.by_peer.is_empty(), "any frame would have bought time");

        let mut world = World::new();
        world.client.write_all(&[0, 1, AUTHENTIC]).unwrap();
        world.wait();
        assert_eq!(world.read().0, [vec![AUTHENTIC]]);
        world.port.serve(Instant::now() + UNPROVEN + SWEEP);
        assert_eq!(world.port.by_peer.len(), 1, "a participant's");
        world.port.serve(Instant::now() + IDLE + SWEEP + SWEEP);
        assert!(world.port.by_peer.is_empty(), "and silent since");
    }

    #[test]
    fn one_address_gets_its_share_of_places_and_gives_them_back() {
        let mut world = World::new();
        let to = world.port.listeners[0].local_addr().unwrap();
        let _second = TcpStream::connect(to).unwrap();
        let third = TcpStream::connect(to).unwrap();
        while world.port.counts.of_address.get() == 0 {
            world.wait();
        }
        assert_eq!(world.port.by_peer.len(), 2);
        third.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!((&third).read(&mut [0]).unwrap(), 0, "refused at once");
        let first = world.port.by_peer[&world.peer];
        world.port.close(first);
        let fourth = TcpStream::connect(to).unwrap();
        while !world.port.by_peer.contains_key(&fourth.local_addr().unwrap()) {
            world.wait();
        }
    }
}
