use super::*;
use net::PollFd;
use std::io::Read;

/// First byte of a packet that the tests take for authentic.
const AUTHENTIC: u8 = 0x90;

struct World {
    port: TcpPort,
    client: TcpStream,
    peer: SocketAddr,
    /// Whose the packets are that were read last.
    asked_as: SocketAddr,
}

impl World {
    fn new() -> Self {
        Self::with(Proxies::default())
    }

    fn with(proxies: Proxies) -> Self {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = client.local_addr().unwrap();
        let port =
            TcpPort::new(vec![listener], (Places::new(8, 2), proxies), "media-0", &Metrics::new())
                .unwrap();
        let mut world = Self { port, client, peer, asked_as: peer };
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
        while let Some((index, peer, mut reader)) = self.port.lend_reader(Instant::now()) {
            self.asked_as = peer;
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
    assert_eq!(world.asked_as, world.peer);
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

/// A world whose client is a trusted proxy.
fn behind_proxy() -> World {
    World::with(Proxies::new(&["127.0.0.1".parse().unwrap()]))
}

#[test]
fn a_trusted_proxys_connection_is_its_clients() {
    let mut world = behind_proxy();
    // A header in pieces, and the first packet with its end.
    let client: SocketAddr = "203.0.113.9:5678".parse().unwrap();
    world.client.write_all(b"PROXY TCP4 203.0.113.9 10.0").unwrap();
    world.wait();
    assert!(world.read().0.is_empty());
    world.client.write_all(b".0.1 5678 80\r\n\0\x02\x07\x08\0").unwrap();
    world.wait();
    assert_eq!(world.read().0, [vec![7, 8]]);
    assert_eq!(world.asked_as, client);
    world.client.write_all(&[1, AUTHENTIC]).unwrap();
    world.wait();
    assert_eq!(world.read().0, [vec![AUTHENTIC]]);
    // Packets find it by the client's address alone.
    assert!(!world.queue(Priority::High, 92, 2));
    world.peer = client;
    assert!(world.queue(Priority::High, 92, 2));
    world.port.flush();
    assert_eq!(frames(&world.client, 1), [(2, 92)]);
    world.port.close(world.port.by_peer[&client]);
    assert!(world.port.by_peer.is_empty());
    assert_eq!(format!("{:?}", world.port.places), format!("{:?}", Places::new(8, 2)));
}

#[test]
fn a_limit_is_of_the_client_behind_a_proxy_and_not_of_the_proxy() {
    let mut world = behind_proxy();
    let to = world.port.listeners[0].local_addr().unwrap();
    let header = |last: u8| format!("PROXY TCP4 203.0.113.{last} 10.0.0.1 {last} 80\r\n");
    let mut others: Vec<TcpStream> = Vec::new();
    // Two of each are allowed; the proxy itself has one already, and says nothing.
    for (port, last) in [1, 1, 2, 2, 3, 3].into_iter().enumerate() {
        let mut stream = TcpStream::connect(to).unwrap();
        let header = header(last).replace(&format!(" {last} 80"), &format!(" {} 80", port + 1));
        stream.write_all(header.as_bytes()).unwrap();
        others.push(stream);
    }
    let known =
        |world: &World| world.port.by_peer.keys().filter(|peer| !peer.ip().is_loopback()).count();
    while known(&world) < 6 {
        world.wait();
        world.read();
    }
    assert_eq!(world.port.counts.of_address.get(), 0);
    let mut third = TcpStream::connect(to).unwrap();
    third.write_all(header(1).as_bytes()).unwrap();
    while world.port.counts.of_address.get() == 0 {
        world.wait();
        world.read();
    }
    third.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    // What it sent was read: the end is a regular one.
    assert_eq!((&third).read(&mut [0]).unwrap(), 0);
    // In all there are eight: seven are there, one more of the proxy may come.
    let _eighth = TcpStream::connect(to).unwrap();
    let _ninth = TcpStream::connect(to).unwrap();
    while world.port.counts.refused.get() == 0 {
        world.wait();
    }
}

#[test]
fn a_proxy_that_says_nothing_is_a_peer_like_any_other() {
    let mut world = behind_proxy();
    world.client.write_all(&[0, 1, AUTHENTIC]).unwrap();
    world.wait();
    assert_eq!(world.read().0, [vec![AUTHENTIC]]);
    assert_eq!(world.asked_as, world.peer);
    let mut world = behind_proxy();
    // LOCAL: the proxy looks whether somebody is there.
    world.client.write_all(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0\0\x01\x07").unwrap();
    world.wait();
    assert_eq!((world.read().0, world.asked_as), (vec![vec![7]], world.peer));
}

#[test]
fn headers_that_cannot_be_taken_end_a_connection_with_the_reason() {
    let mut world = behind_proxy();
    world.client.write_all(b"PROXY TCP4 nobody\r\n").unwrap();
    world.wait();
    world.read();
    assert!(world.port.by_peer.is_empty());
    let mut world = behind_proxy();
    world.client.write_all(b"PROXY TCP4").unwrap();
    world.wait();
    world.read();
    world.port.serve(Instant::now() + UNPROVEN + SWEEP);
    assert!(world.port.by_peer.is_empty(), "a header that never ends");

    for header in
        [&b"PROXY TCP4 203.0.113.9 10.0.0.1 1 2\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"]
    {
        let mut world = World::new();
        world.client.write_all(header).unwrap();
        world.wait();
        let (_, end) = world.read();
        assert_eq!(end.as_deref(), Some("ProxyHeader"), "who is no trusted proxy");
        assert!(world.port.by_peer.is_empty());
    }
}

#[test]
fn many_silent_connections_are_closed_a_few_at_a_time() {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let places = Places::new(256, 256);
    let terms = (places, Proxies::default());
    let mut port = TcpPort::new(vec![listener], terms, "media-0", &Metrics::new()).unwrap();
    let clients: Vec<_> = (0..CLOSES + 8).map(|_| TcpStream::connect(address).unwrap()).collect();
    while port.by_peer.len() < clients.len() {
        port.serve(Instant::now());
    }
    let over = Instant::now() + UNPROVEN + SWEEP;
    port.serve(over);
    assert_eq!(port.by_peer.len(), 8, "packets have their turn");
    assert!(port.is_due(over), "the others do not wait for the next sweep");
    port.serve(over);
    assert_eq!(port.by_peer.len(), 0);
    assert!(!port.is_due(over));
}
