//! Tests that see both sides: the server's engine and the lab's bots, the house, the command line.

mod cli;
mod house;
mod slot_pool;
mod virtual_time;
