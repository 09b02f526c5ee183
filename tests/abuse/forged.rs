//! STUN without integrity moves nobody and learns no address (door 8).
