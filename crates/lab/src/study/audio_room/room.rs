//! The scenarios of the study's rooms, and who takes part in them.

use super::super::session::Sessions;

/// Everybody sends sound all the time and speaks for a hundredth of it, in turn: of a thousand, ten at any time. If they
/// spoke when they like, what a room costs would follow that more than the number of people.
const SPEAK: &str = ", roles: [{ name: person, speaks_pct: 1, in_turn: true }]";

/// Why no browser takes part; none: some do.
pub(super) fn no_browser(sessions: &Sessions) -> Option<String> {
    let quick = sessions.quick.then(|| "--quick starts no browser".to_owned());
    quick.or_else(|| sessions.no_chromium())
}

/// The scenario of one mixed room.
pub(super) fn room(
    sessions: &Sessions,
    bots: u32,
    chromium: u32,
    seconds: u32,
    join: f64,
) -> String {
    let serve = if chromium > 0 { "serve: { cpus: shared }\n" } else { &sessions.serve(1) };
    scenario(serve, bots, chromium, seconds, join)
}

/// As in the study the platform's API makes the room before anyone comes.
pub(super) fn scenario(serve: &str, bots: u32, chromium: u32, seconds: u32, join: f64) -> String {
    format!(
        "{serve}duration: {seconds}s\nrooms: [{{ preset: large_room_for_audio_only, create: api, \
         max_participants: {}, people: {{ bot: {bots}, chromium: {chromium} }}{SPEAK} }}]\nmedia: {{ \
         audio: speech, video: none }}\njoin: {{ per_second: {join} }}\n",
        bots + chromium
    )
}
