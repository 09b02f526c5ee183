//! The batched socket over the loopback of both families.

use net::{Events, FlushReport, Poller, RecvBatch, SendBatch, SocketOptions, UdpBatchSocket};
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const LOOPBACKS: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

fn bind(addr: &str, options: SocketOptions) -> UdpBatchSocket {
    UdpBatchSocket::bind(addr.parse().unwrap(), options).unwrap()
}

fn addr(socket: &UdpBatchSocket) -> SocketAddr {
    socket.local_addr().unwrap()
}

/// Receives until `count` datagrams have come; fails when none comes for ten seconds.
fn receive(socket: &UdpBatchSocket, count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let (poller, mut events) = (Poller::new().unwrap(), Events::with_capacity(1));
    poller.add(socket, 0).unwrap();
    let (mut batch, mut got) = (RecvBatch::new(8), Vec::new());
    while got.len() < count {
        let ready = poller.wait(&mut events, Some(Duration::from_secs(10))).unwrap();
        assert!(ready > 0, "{} of {count} datagrams came", got.len());
        let announced = socket.recv(&mut batch).unwrap();
        let before = got.len();
        got.extend(batch.datagrams().map(|d| (d.src, d.data.to_vec())));
        assert_eq!(got.len() - before, announced);
    }
    got
}

fn payload(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed * 17 + (i >> 8)) as u8).collect()
}

#[test]
fn mixed_sizes_to_mixed_destinations_arrive_byte_identical_and_in_order() {
    for loopback in LOOPBACKS {
        let hub = bind(loopback, SocketOptions::default());
        let peers: Vec<_> = (0..3).map(|_| bind(loopback, SocketOptions::default())).collect();
        let (mut batch, mut report) = (SendBatch::new(100), FlushReport::default());
        let mut expected: HashMap<SocketAddr, Vec<Vec<u8>>> = HashMap::new();
        let total = 3000;
        for n in 0..total {
            // Runs of equal size, with odd sizes and changes of destination among them.
            let dst = addr(&peers[n / 5 % 3]);
            let data = payload(n, [1200, 1200, 1200, 1200, 700, 1, 1500, 90][n % 8]);
            if !batch.push(dst, &data) {
                report += batch.flush(&hub);
                assert!(batch.push(dst, &data));
            }
            expected.entry(dst).or_default().push(data);
        }
        report += batch.flush(&hub);
        assert_eq!((report.sent, report.failed, report.send_buffer_full), (total as u64, 0, 0));
        assert!(report.gso_messages > 0 && report.gso_fallbacks == 0, "{report:?}");

        // Back again: each peer returns what it got.
        for peer in &peers {
            let sent = &expected[&addr(peer)];
            let got = receive(peer, sent.len());
            assert!(got.iter().all(|(src, _)| *src == addr(&hub)));
            assert!(got.iter().map(|(_, data)| data).eq(sent));
            for (src, data) in &got {
                if !batch.push(*src, data) {
                    report += batch.flush(peer);
                    assert!(batch.push(*src, data));
                }
            }
            report += batch.flush(peer);
            let back = receive(&hub, sent.len());
            assert!(back.iter().all(|(src, _)| *src == addr(peer)));
            assert!(back.iter().map(|(_, data)| data).eq(sent));
        }
        assert_eq!((report.sent, report.failed), (2 * total as u64, 0));
    }
}

#[test]
fn gso_sends_one_message_and_gro_hands_over_the_datagrams_split() {
    for loopback in LOOPBACKS {
        let (a, b) =
            (bind(loopback, SocketOptions::default()), bind(loopback, SocketOptions::default()));
        assert!(b.gro());
        let mut batch = SendBatch::new(64);
        let sent: Vec<_> = (0..40).map(|n| payload(n, if n == 39 { 333 } else { 1000 })).collect();
        for data in &sent {
            let mut slot = batch.slot(addr(&b)).unwrap();
            slot[..data.len()].copy_from_slice(data);
            slot.commit(data.len());
        }
        let report = batch.flush(&a);
        assert_eq!((report.sent, report.gso_messages, report.sent_bytes), (40, 1, 39_333));
        assert!(batch.is_empty());

        let mut inbox = RecvBatch::new(32);
        let (poller, mut events) = (Poller::new().unwrap(), Events::with_capacity(1));
        poller.add(&b, 0).unwrap();
        poller.wait(&mut events, None).unwrap();
        assert_eq!(b.recv(&mut inbox).unwrap(), 40);
        assert_eq!(inbox.messages(), 1, "GRO joined them");
        assert!(!inbox.is_full());
        assert!(inbox.datagrams().map(|d| d.data.to_vec()).eq(sent));
        assert_eq!(b.recv(&mut inbox).unwrap(), 0);
        assert_eq!(inbox.datagrams().count(), 0);
    }
}

#[test]
fn a_kernel_that_refuses_gso_gets_single_datagrams() {
    let (a, b) = (
        bind(LOOPBACKS[0], SocketOptions::default()),
        bind(LOOPBACKS[0], SocketOptions::default()),
    );
    refuse_gso(&a);
    let mut batch = SendBatch::new(64);
    let sent: Vec<_> = (0..20).map(|n| payload(n, 800)).collect();
    for data in &sent {
        assert!(batch.push(addr(&b), data));
    }
    let report = batch.flush(&a);
    assert_eq!((report.sent, report.gso_messages, report.gso_fallbacks), (20, 0, 1));
    assert!(receive(&b, 20).into_iter().map(|(_, data)| data).eq(sent));
}

/// Without UDP checksums (`SO_NO_CHECK`) Linux refuses GSO with EINVAL.
fn refuse_gso(socket: &UdpBatchSocket) {
    use std::os::fd::AsRawFd;
    let on: libc::c_int = 1;
    // SAFETY: `on` is an int of the size given and outlives the call.
    let result = unsafe {
        let (value, len) = ((&raw const on).cast(), size_of_val(&on) as libc::socklen_t);
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, value, len)
    };
    assert_eq!(result, 0);
}

#[test]
fn an_address_in_use_is_named_in_the_error() {
    for loopback in LOOPBACKS {
        let first = bind(loopback, SocketOptions::default());
        let error = UdpBatchSocket::bind(addr(&first), SocketOptions::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&addr(&first).to_string()), "{error}");
    }
    let shared = SocketOptions { reuse_port: true, ..SocketOptions::default() };
    let first = bind(LOOPBACKS[0], shared.clone());
    UdpBatchSocket::bind(addr(&first), shared).unwrap();
}

#[test]
fn drops_at_a_tiny_receive_buffer_are_counted() {
    let tiny = SocketOptions { recv_buffer: 1, ..SocketOptions::default() };
    let (a, b) = (bind(LOOPBACKS[0], SocketOptions::default()), bind(LOOPBACKS[0], tiny));
    assert!(b.granted_recv_buffer() < 64 * 1024);
    assert!(a.granted_recv_buffer() >= 100 * 1024 && a.granted_send_buffer() >= 100 * 1024);
    assert_eq!(b.kernel_drops().unwrap(), 0);
    let mut batch = SendBatch::new(200);
    batch.set_gso(false);
    for n in 0..200 {
        assert!(batch.push(addr(&b), &payload(n, 1200)));
    }
    assert_eq!(batch.flush(&a).sent, 200);
    // On the loopback a sent datagram is queued or dropped before the call returns... unless the
    // kernel deferred it, so wait until all are accounted for.
    let (mut inbox, mut got) = (RecvBatch::new(32), 0);
    let deadline = Instant::now() + Duration::from_secs(10);
    while got + b.kernel_drops().unwrap() < 200 {
        got += b.recv(&mut inbox).unwrap() as u64;
        assert!(Instant::now() < deadline, "{got} received, {:?} dropped", b.kernel_drops());
    }
    got += b.recv(&mut inbox).unwrap() as u64;
    assert!(got < 200);
    assert_eq!(got + b.kernel_drops().unwrap(), 200);
    assert_eq!(a.kernel_drops().unwrap(), 0);
}

#[test]
fn arrivals_are_stamped_by_the_kernel() {
    let (a, b) = (
        bind(LOOPBACKS[0], SocketOptions::default()),
        bind(LOOPBACKS[0], SocketOptions::default()),
    );
    let mut inbox = RecvBatch::new(4);
    // The kernel starts to stamp with a delay after the first socket asks for it.
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let (before, wall) =
            (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap());
        a.send_to(addr(&b), b"when").unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(b.recv(&mut inbox).unwrap(), 1);
        let after = Instant::now();
        let datagram = inbox.datagrams().next().unwrap();
        let received = datagram.received.expect("a time");
        assert!(datagram.arrival <= after);
        let slip = Duration::from_millis(1); // the two clocks are read one after the other
        assert!(received + slip >= wall && datagram.arrival + slip >= before);
        if after - datagram.arrival >= Duration::from_millis(15) {
            break; // the time of the arrival, not of the reading
        }
        assert!(Instant::now() < deadline, "the stamps are those of the reading");
    }
    let plain = SocketOptions { timestamps: false, ..SocketOptions::default() };
    let c = bind(LOOPBACKS[0], plain);
    a.send_to(addr(&c), b"").unwrap();
    assert_eq!(receive(&c, 1), [(addr(&a), vec![])]);
}

#[test]
fn a_dual_stack_socket_shows_and_reaches_ipv4_as_ipv4() {
    let dual = bind("[::]:0", SocketOptions::default());
    let v4 = bind(LOOPBACKS[0], SocketOptions::default());
    let dual_as_v4 = SocketAddr::from(([127, 0, 0, 1], addr(&dual).port()));
    v4.send_to(dual_as_v4, b"hello").unwrap();
    assert_eq!(receive(&dual, 1), [(addr(&v4), b"hello".to_vec())]);
    dual.send_to(addr(&v4), b"one").unwrap();
    let mut batch = SendBatch::new(4);
    assert!(batch.push(addr(&v4), b"two"));
    assert_eq!(batch.flush(&dual.try_clone().unwrap()).sent, 1);
    let data = receive(&v4, 2);
    assert_eq!(data, [(dual_as_v4, b"one".to_vec()), (dual_as_v4, b"two".to_vec())]);

    let only = SocketOptions { v6_only: true, ..SocketOptions::default() };
    let only = bind("[::]:0", only);
    assert!(batch.push(addr(&v4), b"no way") && batch.push(addr(&only), b"self"));
    assert!(batch.push("[::1]:9".parse().unwrap(), b"x"));
    let report = batch.flush(&only);
    assert_eq!((report.sent, report.failed), (2, 1), "{report:?}");
    assert_eq!(report.last_errno, Some(libc::ENETUNREACH));
}

#[test]
fn an_unreachable_destination_fails_alone() {
    let (a, b) = (
        bind(LOOPBACKS[0], SocketOptions::default()),
        bind(LOOPBACKS[0], SocketOptions::default()),
    );
    let mut batch = SendBatch::new(8);
    assert!(batch.push(addr(&b), b"first"));
    // A v4 socket cannot send to v6; broadcast needs an option.
    assert!(batch.push("[::1]:9".parse().unwrap(), b"lost"));
    assert!(batch.push("255.255.255.255:9".parse().unwrap(), b"lost"));
    assert!(batch.push(addr(&b), b"second"));
    let report = batch.flush(&a);
    assert_eq!((report.sent, report.failed), (2, 2));
    let data: Vec<_> = receive(&b, 2).into_iter().map(|(_, data)| data).collect();
    assert_eq!(data, [b"first".to_vec(), b"second".to_vec()]);
}

#[test]
fn one_socket_serves_many_addresses_of_the_loopback() {
    let options = SocketOptions { packet_info: true, ..SocketOptions::default() };
    let many = bind("0.0.0.0:0", options);
    let port = addr(&many).port();
    let hub = bind(LOOPBACKS[0], SocketOptions::default());
    let mut batch = SendBatch::new(64);
    let own = |n: u8| Ipv4Addr::new(127, 7, 0, n);
    // Runs of equal size: two addresses are two GSO messages, however alike their datagrams.
    for n in 0..24 {
        assert!(batch.push_from(Some(own(1 + n / 12)), addr(&hub), &payload(n.into(), 300)));
    }
    let report = batch.flush(&many);
    assert_eq!((report.sent, report.gso_messages), (24, 2), "{report:?}");
    let got = receive(&hub, 24);
    for (n, (src, data)) in got.iter().enumerate() {
        assert_eq!(*src, SocketAddr::from((own(1 + n as u8 / 12), port)));
        assert_eq!(*data, payload(n, 300));
    }
    let (mut inbox, mut seen) = (RecvBatch::new(8), Vec::new());
    for n in 1..3 {
        hub.send_to(SocketAddr::from((own(n), port)), &[n]).unwrap();
    }
    let (poller, mut events) = (Poller::new().unwrap(), Events::with_capacity(1));
    poller.add(&many, 0).unwrap();
    while seen.len() < 2 {
        assert!(poller.wait(&mut events, Some(Duration::from_secs(10))).unwrap() > 0);
        many.recv(&mut inbox).unwrap();
        seen.extend(inbox.datagrams().map(|d| (d.dst, d.data[0])));
    }
    assert_eq!(seen, [(Some(own(1)), 1), (Some(own(2)), 2)]);
    // Without being asked to, a socket does not say.
    hub.send_to(addr(&hub), b"self").unwrap();
    let plain = loop {
        if hub.recv(&mut inbox).unwrap() > 0 {
            break inbox.datagrams().next().unwrap().dst;
        }
    };
    assert_eq!(plain, None);
}
