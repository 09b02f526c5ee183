//! The system calls, each behind a safe function: the only `unsafe` code of this crate.
#![allow(unsafe_code)]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

/// Most messages that one `recvmmsg` or `sendmmsg` call carries; their headers live on the stack.
pub(crate) const MESSAGES_PER_CALL: usize = 64;
/// Bytes of one receive buffer: any UDP datagram, or a whole GRO super-datagram.
pub(crate) const RECV_BUFFER: usize = 64 * 1024 + 27 * 64;
/// Ancillary space for one received message: a timespec (32), the GRO size (24) and the address it
/// came to (32).
const RECV_CONTROL: usize = 96;
/// `CMSG_SPACE(size_of::<u16>())`: the size of segments.
const SEGMENT_CONTROL: usize = 24;
/// `CMSG_SPACE(size_of::<in_pktinfo>())`: the source address.
const SOURCE_CONTROL: usize = 32;
/// Ancillary space for one sent message: both.
const SEND_CONTROL: usize = SEGMENT_CONTROL + SOURCE_CONTROL;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(duration.subsec_nanos() as i32),
    }
}

fn duration(time: libc::timespec) -> Duration {
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32)
}

/// Room for the address of either family, in the kernel's form.
#[derive(Clone, Copy)]
#[repr(C)]
union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Name {
    fn empty() -> Self {
        // SAFETY: both members are plain C structs for which all-zero bytes are a valid value.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }

    /// The kernel's form of `addr`; for an IPv6 socket (`v6`) an IPv4 address becomes v4-mapped.
    fn encode(addr: SocketAddr, v6: bool) -> (Self, libc::socklen_t) {
        let mut name = Self::empty();
        let addr = match addr {
            SocketAddr::V4(a) if v6 => {
                SocketAddr::V6(SocketAddrV6::new(a.ip().to_ipv6_mapped(), a.port(), 0, 0))
            }
            other => other,
        };
        match addr {
            SocketAddr::V4(a) => {
                name.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: a.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(a.ip().octets()) },
                    sin_zero: [0; 8],
                };
                (name, size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            SocketAddr::V6(a) => {
                name.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: a.port().to_be(),
                    sin6_flowinfo: a.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: a.ip().octets() },
                    sin6_scope_id: a.scope_id(),
                };
                (name, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
            }
        }
    }

    /// The address, with v4-mapped ones as plain IPv4; `None` for a family that is neither.
    fn decode(&self) -> Option<SocketAddr> {
        // SAFETY: both members begin with the family, and every byte was initialised by `empty`.
        let family = i32::from(unsafe { self.v4.sin_family });
        if family == libc::AF_INET {
            // SAFETY: the family says which member the kernel wrote.
            let a = unsafe { self.v4 };
            let ip = Ipv4Addr::from(a.sin_addr.s_addr.to_ne_bytes());
            return Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(a.sin_port))));
        }
        if family != libc::AF_INET6 {
            return None;
        }
        // SAFETY: the family says which member the kernel wrote.
        let a = unsafe { self.v6 };
        let (ip, port) = (Ipv6Addr::from(a.sin6_addr.s6_addr), u16::from_be(a.sin6_port));
        Some(match ip.to_ipv4_mapped() {
            Some(v4) => SocketAddr::V4(SocketAddrV4::new(v4, port)),
            None => SocketAddr::V6(SocketAddrV6::new(ip, port, a.sin6_flowinfo, a.sin6_scope_id)),
        })
    }
}

/// A new nonblocking socket of the family of `addr`: `SOCK_DGRAM` or `SOCK_STREAM`.
pub(crate) fn socket(addr: SocketAddr, kind: i32) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
    let kind = kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `bind(2)`.
pub(crate) fn bind(fd: BorrowedFd<'_>, addr: SocketAddr) -> io::Result<()> {
    let (name, len) = Name::encode(addr, false);
    // SAFETY: `name` holds `len` initialised bytes and outlives the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), len) }).map(drop)
}

/// `listen(2)`.
pub(crate) fn listen(fd: BorrowedFd<'_>, backlog: i32) -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) }).map(drop)
}

/// `connect(2)`: of a nonblocking socket, it only begins.
pub(crate) fn connect(fd: BorrowedFd<'_>, addr: SocketAddr) -> io::Result<()> {
    let (name, len) = Name::encode(addr, false);
    // SAFETY: `name` holds `len` initialised bytes and outlives the call.
    let done = check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const name).cast(), len) });
    match done {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(()),
        other => other.map(drop),
    }
}

/// `setsockopt(2)` with an `int`.
pub(crate) fn set_option(
    fd: BorrowedFd<'_>,
    level: i32,
    option: i32,
    value: i32,
) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `value` is `len` bytes and outlives the call.
    check(unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const value).cast(), len)
    })
    .map(drop)
}

/// `getsockopt(2)` into an array of words; the words the kernel left unwritten stay 0.
fn get_words<const N: usize>(
    fd: BorrowedFd<'_>,
    level: i32,
    option: i32,
) -> io::Result<([u32; N], usize)> {
    let mut words = [0u32; N];
    let mut len = size_of_val(&words) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `words`, and the new length into `len`.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, option, words.as_mut_ptr().cast(), &raw mut len)
    })?;
    Ok((words, len as usize / size_of::<u32>()))
}

/// `getsockopt(2)` with an `int`.
pub(crate) fn get_option(fd: BorrowedFd<'_>, level: i32, option: i32) -> io::Result<i32> {
    Ok(get_words::<1>(fd, level, option)?.0[0] as i32)
}

/// Datagrams that the kernel dropped at this socket (`SO_MEMINFO`, `SK_MEMINFO_DROPS`).
pub(crate) fn dropped_datagrams(fd: BorrowedFd<'_>) -> io::Result<u32> {
    const SK_MEMINFO_DROPS: usize = 8;
    let (words, written) = get_words::<16>(fd, libc::SOL_SOCKET, libc::SO_MEMINFO)?;
    if written <= SK_MEMINFO_DROPS {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "SO_MEMINFO reports no drops"));
    }
    Ok(words[SK_MEMINFO_DROPS])
}

/// Ancillary memory, aligned as `cmsghdr` needs it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control<const N: usize>([u8; N]);

/// What the kernel said about one received message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    /// Who sent it; `None` for an address that is neither IPv4 nor IPv6.
    pub(crate) src: Option<SocketAddr>,
    /// Bytes in its buffer.
    pub(crate) len: usize,
    /// Size of the datagrams that GRO joined; 0 for a single datagram.
    pub(crate) segment: usize,
    /// `CLOCK_REALTIME` at its arrival, since the epoch.
    pub(crate) realtime: Option<Duration>,
    /// The own address it came to, where the socket was told to say so.
    pub(crate) dst: Option<Ipv4Addr>,
}

/// One nonblocking `recvmmsg(2)` into consecutive [`RECV_BUFFER`]s of `buffers`; returns how many
/// of `received` were filled (at most [`MESSAGES_PER_CALL`]).
pub(crate) fn receive(
    fd: BorrowedFd<'_>,
    buffers: &mut [u8],
    received: &mut [Received],
) -> io::Result<usize> {
    let count = received.len().min(buffers.len() / RECV_BUFFER).min(MESSAGES_PER_CALL);
    let mut names = [const { MaybeUninit::<Name>::uninit() }; MESSAGES_PER_CALL];
    let mut controls =
        [const { MaybeUninit::<Control<RECV_CONTROL>>::uninit() }; MESSAGES_PER_CALL];
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; MESSAGES_PER_CALL];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MESSAGES_PER_CALL];
    for (i, buffer) in buffers.chunks_exact_mut(RECV_BUFFER).take(count).enumerate() {
        let vector = vectors[i]
            .write(libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: RECV_BUFFER });
        headers[i].write(header(
            (&raw mut *names[i].write(Name::empty())).cast(),
            size_of::<Name>() as libc::socklen_t,
            vector,
            (&raw mut controls[i]).cast(),
            RECV_CONTROL,
        ));
    }
    // SAFETY: the first `count` headers are initialised and point at memory that outlives the
    // call and that nothing else refers to; each length is that of its memory.
    let filled = check(unsafe {
        libc::recvmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr().cast(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT as _,
            ptr::null_mut(),
        )
    })? as usize;
    for i in 0..filled.min(count) {
        // SAFETY: of the first `count` headers and names, all initialised above.
        let (header, name) = unsafe { (headers[i].assume_init_ref(), names[i].assume_init_ref()) };
        received[i] = Received {
            src: name.decode(),
            len: (header.msg_len as usize).min(RECV_BUFFER),
            ..Received::default()
        };
        read_control(&header.msg_hdr, &mut received[i]);
    }
    Ok(filled.min(count))
}

fn header(
    name: *mut libc::c_void,
    name_len: libc::socklen_t,
    vector: *mut libc::iovec,
    control: *mut libc::c_void,
    control_len: usize,
) -> libc::mmsghdr {
    // SAFETY: a plain C struct (with private padding on some targets): zero is a valid value.
    let mut header: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_hdr.msg_name = name;
    header.msg_hdr.msg_namelen = name_len;
    header.msg_hdr.msg_iov = vector;
    header.msg_hdr.msg_iovlen = 1;
    header.msg_hdr.msg_control = control;
    header.msg_hdr.msg_controllen = control_len as _;
    header
}

fn read_control(header: &libc::msghdr, received: &mut Received) {
    // SAFETY: the kernel wrote `msg_controllen` bytes of well-formed ancillary data at
    // `msg_control`; the CMSG functions stay within them, and the data is read unaligned.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(header);
        while !at.is_null() {
            let (level, kind, data) = ((*at).cmsg_level, (*at).cmsg_type, libc::CMSG_DATA(at));
            if (level, kind) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
                let time = ptr::read_unaligned(data.cast::<libc::timespec>());
                received.realtime = Some(duration(time));
            } else if (level, kind) == (libc::SOL_UDP, libc::UDP_GRO) {
                let size = ptr::read_unaligned(data.cast::<libc::c_int>());
                received.segment = usize::try_from(size).unwrap_or(0);
            } else if (level, kind) == (libc::IPPROTO_IP, libc::IP_PKTINFO) {
                let info = ptr::read_unaligned(data.cast::<libc::in_pktinfo>());
                received.dst = Some(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes()));
            }
            at = libc::CMSG_NXTHDR(header, at);
        }
    }
}

/// One message to send: a run of bytes of the arena, which the kernel cuts into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    /// The own address it comes from; the system's choice where none is given.
    pub(crate) src: Option<Ipv4Addr>,
    pub(crate) dst: SocketAddr,
    /// Where it begins in the arena.
    pub(crate) start: usize,
    /// Its bytes.
    pub(crate) len: usize,
    /// The size of a datagram in it (the last may be shorter).
    pub(crate) segment: u16,
    /// How many datagrams it is; more than one goes out as a GSO message.
    pub(crate) datagrams: u16,
}

/// One `sendmmsg(2)` of at most [`MESSAGES_PER_CALL`] messages; returns how many were accepted.
/// A message whose bytes are not in the arena is refused with `InvalidInput`.
pub(crate) fn send(
    fd: BorrowedFd<'_>,
    v6: bool,
    arena: &[u8],
    messages: &[Outgoing],
) -> io::Result<usize> {
    let count = messages.len().min(MESSAGES_PER_CALL);
    let mut names = [const { MaybeUninit::<Name>::uninit() }; MESSAGES_PER_CALL];
    let mut controls =
        [const { MaybeUninit::<Control<SEND_CONTROL>>::uninit() }; MESSAGES_PER_CALL];
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; MESSAGES_PER_CALL];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MESSAGES_PER_CALL];
    for (i, message) in messages[..count].iter().enumerate() {
        let bytes = message
            .start
            .checked_add(message.len)
            .and_then(|end| arena.get(message.start..end))
            .ok_or(io::ErrorKind::InvalidInput)?;
        let (encoded, name_len) = Name::encode(message.dst, v6);
        let name = names[i].write(encoded);
        // The kernel only reads through this pointer.
        let vector = vectors[i].write(libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        });
        let (filled, control_len) = send_control(message);
        let (control, control_len): (*mut libc::c_void, usize) = if control_len > 0 {
            let control = controls[i].write(filled);
            ((&raw mut *control).cast(), control_len)
        } else {
            (ptr::null_mut(), 0)
        };
        headers[i].write(header((&raw mut *name).cast(), name_len, vector, control, control_len));
    }
    // SAFETY: the first `count` headers are initialised and point at memory that outlives the
    // call, each length being that of its memory; the kernel reads it all and writes `msg_len`.
    let sent = check(unsafe {
        libc::sendmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr().cast(),
            count as libc::c_uint,
            (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
        )
    })?;
    Ok(sent as usize)
}

/// The ancillary messages of one message, and how many bytes they take: `IP_PKTINFO` where it has
/// a source of its own, `UDP_SEGMENT` where the kernel is to cut it into datagrams.
fn send_control(message: &Outgoing) -> (Control<SEND_CONTROL>, usize) {
    let mut control = Control([0u8; SEND_CONTROL]);
    let mut used = 0;
    // SAFETY: `SEND_CONTROL` is the CMSG_SPACE of both messages and the memory is aligned for
    // `cmsghdr`; each begins at a multiple of 8, so that header and data lie within it.
    unsafe {
        let base: *mut u8 = (&raw mut control).cast();
        if let Some(src) = message.src {
            let at: *mut libc::cmsghdr = base.cast();
            (*at).cmsg_level = libc::IPPROTO_IP;
            (*at).cmsg_type = libc::IP_PKTINFO;
            (*at).cmsg_len = libc::CMSG_LEN(size_of::<libc::in_pktinfo>() as u32) as _;
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(src.octets()) },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            ptr::write_unaligned(libc::CMSG_DATA(at).cast::<libc::in_pktinfo>(), info);
            used = SOURCE_CONTROL;
        }
        if message.datagrams > 1 {
            let at: *mut libc::cmsghdr = base.add(used).cast();
            (*at).cmsg_level = libc::SOL_UDP;
            (*at).cmsg_type = libc::UDP_SEGMENT;
            (*at).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
            ptr::write_unaligned(libc::CMSG_DATA(at).cast::<u16>(), message.segment);
            used += SEGMENT_CONTROL;
        }
    }
    (control, used)
}

/// `ppoll(2)`, again after an interruption by a signal; `None` waits without end.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    let time = timeout.map(timespec);
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `fds` is a valid array of its length; `time` is null or points at a live timespec.
    let ready = check(unsafe {
        libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, time, ptr::null())
    })?;
    Ok(ready as usize)
}

/// A new nonblocking eventfd at 0.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A new epoll instance.
pub(crate) fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `epoll_ctl(2)`.
pub(crate) fn epoll_control(
    epoll: BorrowedFd<'_>,
    operation: i32,
    fd: RawFd,
    events: u32,
    token: u64,
) -> io::Result<()> {
    let mut event = libc::epoll_event { events, u64: token };
    // SAFETY: `event` outlives the call.
    check(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, fd, &raw mut event) }).map(drop)
}

/// `epoll_pwait2(2)` (Linux 5.11), so that timeouts are finer than a millisecond.
pub(crate) fn epoll_wait(
    epoll: BorrowedFd<'_>,
    events: &mut [libc::epoll_event],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let time = timeout.map(timespec);
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    let capacity = events.len().min(i32::MAX as usize) as libc::c_int;
    // SAFETY: the kernel writes at most `capacity` events into `events`; `time` is null or points
    // at a live timespec; no signal mask is given. The C library's wrapper is newer than the call.
    let ready = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            events.as_mut_ptr(),
            capacity,
            time,
            ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    if ready < 0 { Err(io::Error::last_os_error()) } else { Ok(ready as usize) }
}

/// Sets the nice value of the calling thread.
pub(crate) fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: takes no pointers. On Linux the nice value belongs to the thread, 0 is the caller.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }).map(drop)
}

/// `struct sched_attr` of sched_setattr(2), first version.
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Sets nice value and time slice of the calling thread under the normal policy.
pub(crate) fn set_slice(nice: i32, slice: Duration) -> io::Result<()> {
    let attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice,
        priority: 0,
        runtime_ns: slice.as_nanos() as u64,
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: the kernel reads `size` bytes of the struct during the call; 0 is the caller.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The nice value of the calling thread.
pub(crate) fn nice() -> i32 {
    // SAFETY: takes no pointers, and cannot fail for the calling thread.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// Lets the calling thread run on `cpus` only; each below `CPU_SETSIZE`.
pub(crate) fn set_affinity(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: a plain bit set; zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { MaybeUninit::zeroed().assume_init() };
    for &cpu in cpus {
        if cpu >= libc::CPU_SETSIZE as usize {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no CPU {cpu}")));
        }
        // SAFETY: within the set, checked above.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: `set` is of the size given and outlives the call; 0 is the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) })
        .map(drop)
}

/// The CPUs that the calling thread may run on.
pub(crate) fn affinity() -> io::Result<Vec<usize>> {
    // SAFETY: a plain bit set; zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: the kernel writes at most the size given into `set`.
    check(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) })?;
    // SAFETY: each index is below CPU_SETSIZE.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&i| unsafe { libc::CPU_ISSET(i, &set) }).collect())
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call. It cannot fail with this clock and a valid pointer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    duration(time)
}

/// Sets how late the kernel may let a timer of the calling thread fire.
pub(crate) fn set_timer_slack(slack: Duration) -> io::Result<()> {
    // 0 would mean "the default" to the kernel.
    let ns = libc::c_ulong::try_from(slack.as_nanos()).unwrap_or(libc::c_ulong::MAX).max(1);
    // SAFETY: this operation takes one integer and no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns) }).map(drop)
}

/// Bytes that the allocator holds and nobody uses: see mallinfo(3).
pub(crate) fn free_bytes() -> usize {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes nothing, and glibc locks what it reads.
    return unsafe { libc::mallinfo2() }.fordblks;
    #[cfg(not(target_env = "gnu"))]
    0
}

/// Gives free memory back to the system: see malloc_trim(3). Says whether there was any.
pub(crate) fn trim() -> bool {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointers, and glibc locks what it changes.
    return unsafe { libc::malloc_trim(0) } == 1;
    #[cfg(not(target_env = "gnu"))]
    false
}

/// Blocks of so many bytes and more are mappings of their own, which freeing gives back: see mallopt(3).
pub(crate) fn set_mmap_threshold(bytes: i32) {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointers, and glibc locks what it changes.
    let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, bytes) };
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}
