//! `limits`: bounds that keep one client, or too many, from harming the rest.

use settings::{Section, number, size};

/// `limits`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Most participants of a room.
    pub participants_per_room: u32,
    /// Most participants of a room with mesh media: each sends to all others.
    pub participants_per_mesh: u32,
    /// Up to so many people of a room are told to all others by name; of more, most are an audience.
    pub roster: u32,
    /// How many are heard at once where sound is mixed (MCU): the loudest.
    pub loudest: u8,
    /// Most rooms.
    pub rooms: u32,
    /// Most rooms that were opened from one address (IPv6: from one /64) and are there. Rooms that the HTTP API made do not
    /// count. As all bounds of an address, it does not count where one address may have all sockets, nor in development mode.
    pub rooms_per_address: u32,
    /// Most rooms that one identity (`sub` of tokens) opened and that are there.
    pub rooms_per_identity: u32,
    /// Most seats in all rooms that are held from one address. Default: 500, or as many as `participants_per_room` if that is
    /// more, since a school has one address.
    pub seats_per_address: u32,
    /// Most seats in all rooms that one identity holds.
    pub seats_per_identity: u32,
    /// Most seats of one identity in one room. Another one ends the oldest of them.
    pub sessions_per_identity: u32,
    /// Most audio slots of a participant.
    pub audio_slots: u32,
    /// Most video slots of a participant.
    pub video_slots: u32,
    /// Longest SDP offer, in bytes.
    pub sdp_bytes: usize,
    /// Most sockets at once.
    pub sockets: usize,
    /// Most connections of one address (IPv6: of one /64): over HTTP with its sockets, and as many to each media
    /// thread over TCP. Not counted in development mode. Behind a reverse proxy that is under
    /// `http.trusted_proxies` the client's address counts, not the proxy's.
    pub connections_per_address: usize,
    /// Packets a second that one socket may send in the long run; twice as many at once.
    pub requests_per_second: u32,
    /// Most bytes that wait for one slow socket before it is closed.
    pub outbox_bytes: usize,
    /// Most channels that one socket may be subscribed to.
    pub channels_per_socket: usize,
    /// Most sockets that may be subscribed to one channel.
    pub channel_subscribers: usize,
    /// Longest message on a channel, in bytes of JSON.
    pub message_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            participants_per_room: 500,
            participants_per_mesh: 8,
            roster: 100,
            loudest: 3,
            rooms: 1000,
            rooms_per_address: 100,
            rooms_per_identity: 10,
            seats_per_address: 500,
            seats_per_identity: 20,
            sessions_per_identity: 1,
            audio_slots: 16,
            video_slots: 64,
            sdp_bytes: 192 << 10,
            sockets: 10_000,
            connections_per_address: 512,
            requests_per_second: 200,
            outbox_bytes: 1 << 20,
            channels_per_socket: 100,
            channel_subscribers: 10_000,
            message_bytes: 64 << 10,
        }
    }
}

impl Limits {
    /// Whether one address may be that of everybody: in development mode, and behind a reverse proxy.
    pub fn have_one_address(&self, development: bool) -> bool {
        development || self.connections_per_address >= self.sockets
    }

    /// The same without bounds of an address where one address may be that of everybody.
    #[must_use]
    pub fn of_rooms(self, development: bool) -> Self {
        if !self.have_one_address(development) {
            return self;
        }
        Self { rooms_per_address: u32::MAX, seats_per_address: u32::MAX, ..self }
    }
}

pub(super) fn decode_limits(limits: &mut Section<'_>) -> Limits {
    let default = Limits::default();
    let participants_per_room =
        limits.read("participants_per_room", number(2..=100_000)).or(default.participants_per_room);
    let sessions_per_identity = limits
        .read("sessions_per_identity", number(1..=1_000_000))
        .or(default.sessions_per_identity);
    Limits {
        participants_per_room,
        sessions_per_identity,
        participants_per_mesh: limits
            .read("participants_per_mesh", number(2..=32))
            .or(default.participants_per_mesh),
        roster: limits.read("roster", number(0..=10_000)).or(default.roster),
        loudest: limits.read("loudest", number(1..=8)).or(default.loudest),
        rooms: limits.read("rooms", number(1..=1_000_000)).or(default.rooms),
        rooms_per_address: limits
            .read("rooms_per_address", number(1..=1_000_000))
            .or(default.rooms_per_address),
        rooms_per_identity: limits
            .read("rooms_per_identity", number(1..=1_000_000))
            .or(default.rooms_per_identity),
        seats_per_address: limits
            .read("seats_per_address", number(1..=1_000_000))
            .or(default.seats_per_address.max(participants_per_room)),
        seats_per_identity: limits
            .read("seats_per_identity", number(1..=1_000_000))
            .or(default.seats_per_identity.max(sessions_per_identity)),
        audio_slots: limits.read("audio_slots", number(1..=64)).or(default.audio_slots),
        video_slots: limits.read("video_slots", number(0..=256)).or(default.video_slots),
        // A frame of the socket takes 256 KiB, and JSON makes the SDP's line ends longer.
        sdp_bytes: limits.read("sdp_bytes", size(4096..=240 << 10)).or(default.sdp_bytes as u64)
            as usize,
        sockets: limits.read("sockets", number(1..=1_000_000)).or(default.sockets),
        connections_per_address: limits
            .read("connections_per_address", number(1..=1_000_000))
            .or(default.connections_per_address),
        requests_per_second: limits
            .read("requests_per_second", number(1..=1_000_000))
            .or(default.requests_per_second),
        outbox_bytes: limits
            .read("outbox_bytes", size(64 << 10..=256 << 20))
            .or(default.outbox_bytes as u64) as usize,
        channels_per_socket: limits
            .read("channels_per_socket", number(1..=10_000))
            .or(default.channels_per_socket),
        channel_subscribers: limits
            .read("channel_subscribers", number(1..=1_000_000))
            .or(default.channel_subscribers),
        // A frame of the socket takes 256 KiB in all.
        message_bytes: limits
            .read("message_bytes", size(1 << 10..=240 << 10))
            .or(default.message_bytes as u64) as usize,
    }
}
