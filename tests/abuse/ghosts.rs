//! Every seat has a live socket or a deadline: no socket fills rooms with ghosts (door 2).
