//! Tests that see both sides: the server's engine and the lab's bots, the house, the command line.

mod abuse;
mod audience;
mod bad_input;
mod base_path;
mod by_tcp;
mod cli;
mod deploy;
mod examples;
mod fuzz;
mod hostile_server;
mod house;
mod limits;
mod networks;
mod operation;
mod paths;
mod peer;
mod proxies;
mod raw;
mod readme;
mod refusals;
mod rooms_api;
mod slot_pool;
mod supply;
mod target;
mod virtual_time;
mod witness;
