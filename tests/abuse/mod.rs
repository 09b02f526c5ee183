//! Attacks on the release binary, one program a door: each shows that one hostile participant or
//! address gets no more than an honest one, and that nobody else loses anything by it.

mod amplification;
mod connections;
mod forged;
mod frames;
mod ghosts;
mod grants;
mod memory;
mod offers;
mod silence;
