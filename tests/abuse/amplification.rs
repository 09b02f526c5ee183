//! NACKs for everything: a receiver that asks again and again gets a bounded share (door 1).
