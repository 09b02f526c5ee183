//! Channels of applications: who is subscribed to which, and the way of a publication.
//!
//! A publication is handed to all subscribers under its channel's lock, so all of them see the
//! publications of a channel in one order. `builtin` checks before who may do what. The channels of
//! rooms are not here.

use super::{Publication, Socket};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Why a subscription is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The socket has as many channels as it may.
    Socket,
    /// The channel has as many subscribers as it may.
    Channel,
}

type Subscribers = BTreeMap<u64, Arc<Socket>>;

#[derive(Debug, Default)]
struct Channel(Mutex<Subscribers>);

/// All channels that have subscribers. Locks are taken in the order table, a socket's list of channels, channel, outbox.
#[derive(Debug)]
pub(crate) struct Hub {
    table: Mutex<HashMap<Arc<str>, Arc<Channel>>>,
    channels_per_socket: usize,
    subscribers: usize,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    pub fn new(channels_per_socket: usize, subscribers: usize) -> Self {
        Self { table: Mutex::default(), channels_per_socket, subscribers }
    }

    /// Subscribes a socket; once more changes nothing.
    pub fn subscribe(&self, socket: &Arc<Socket>, name: &str) -> Result<(), Full> {
        let mut table = locked(&self.table);
        let mut own = socket.channels();
        if own.contains(name) {
            return Ok(());
        }
        if own.len() >= self.channels_per_socket {
            return Err(Full::Socket);
        }
        let (name, channel) = match table.get_key_value(name) {
            Some((name, channel)) => (name.clone(), channel.clone()),
            None => {
                let (name, channel) = (Arc::<str>::from(name), Arc::<Channel>::default());
                table.insert(name.clone(), channel.clone());
                (name, channel)
            }
        };
        let mut subscribers = locked(&channel.0);
        if subscribers.len() >= self.subscribers {
            return Err(Full::Channel);
        }
        subscribers.insert(socket.id(), socket.clone());
        own.insert(name);
        Ok(())
    }

    /// Ends a subscription; false if there was none. Nothing of the channel comes after it.
    pub fn unsubscribe(&self, socket: &Socket, name: &str) -> bool {
        let mut table = locked(&self.table);
        let known = socket.channels().remove(name);
        if known {
            remove(&mut table, socket, name);
        }
        known
    }

    /// Ends all subscriptions of a socket.
    pub fn leave(&self, socket: &Socket) {
        let mut table = locked(&self.table);
        let own = std::mem::take(&mut *socket.channels());
        for name in own {
            remove(&mut table, socket, &name);
        }
    }

    /// Hands a publication to all subscribers of its channel; tells how many took it.
    pub fn publish(&self, name: &str, publication: &Publication) -> usize {
        let channel = locked(&self.table).get(name).cloned();
        let Some(channel) = channel else { return 0 };
        let subscribers = locked(&channel.0);
        subscribers.values().filter(|socket| socket.deliver(publication)).count()
    }
}

fn remove(table: &mut HashMap<Arc<str>, Arc<Channel>>, socket: &Socket, name: &str) {
    let Some(channel) = table.get(name) else { return };
    let mut subscribers = locked(&channel.0);
    subscribers.remove(&socket.id());
    let empty = subscribers.is_empty();
    drop(subscribers);
    if empty {
        table.remove(name);
    }
}
