//! A moderator's decision holds until a moderator lifts it (door 6).
