//! Who has subscribed to what, and messages on their way to subscribers.
//!
//! The clients of all fronts are in one table. A publisher puts a message into the mailbox of each
//! subscriber's front while it holds the table, so that all subscribers get the messages of a
//! channel in the same order, and those of one publisher in the order in which it sent them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::commands::glob::matches;
use crate::connection::clients::Client;
use crate::pushes::{Published, Push};

/// What a client can subscribe to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Channels,
    /// All channels whose names fit a pattern.
    Patterns,
    /// Channels with names of their own. In a Redis Cluster each belongs to a shard.
    Shards,
}

impl Scope {
    /// All, by their place.
    pub const ALL: [Self; 3] = [Self::Channels, Self::Patterns, Self::Shards];
}

type Subscribers = BTreeMap<u64, Arc<Client>>;
type Names = BTreeMap<Vec<u8>, Subscribers>;

/// The subscriptions of all clients.
#[derive(Debug, Default)]
pub struct PubSub {
    names: Mutex<[Names; 3]>,
    /// Names that somebody has subscribed to: without any, a publisher looks no further.
    count: AtomicUsize,
}

impl PubSub {
    /// `client` wants what is published at `name`.
    pub fn subscribe(&self, scope: Scope, name: &[u8], client: &Arc<Client>) {
        let mut names = self.names();
        let subscribers = names[scope as usize].entry(name.to_vec()).or_default();
        subscribers.insert(client.id, client.clone());
        self.count(&names);
    }

    /// The client does not want it any more.
    pub fn unsubscribe(&self, scope: Scope, name: &[u8], client: u64) {
        let mut names = self.names();
        if let Some(subscribers) = names[scope as usize].get_mut(name) {
            subscribers.remove(&client);
            if subscribers.is_empty() {
                names[scope as usize].remove(name);
            }
        }
        self.count(&names);
    }

    /// Sends `message` to who has subscribed to `channel`, and to patterns that it fits; returns to
    /// how many subscriptions.
    ///
    /// Cost: a look at every pattern.
    pub fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        if self.count.load(Ordering::SeqCst) == 0 {
            return 0;
        }
        let names = self.names();
        let sent = Arc::new(Published { channel: channel.to_vec(), message: message.to_vec() });
        let mut receivers = 0;
        for client in
            names[Scope::Channels as usize].get(channel).into_iter().flat_map(BTreeMap::values)
        {
            client.push(Push::Message(sent.clone()));
            receivers += 1;
        }
        for (pattern, subscribers) in &names[Scope::Patterns as usize] {
            if !matches(pattern, channel) {
                continue;
            }
            let pattern: Arc<[u8]> = pattern.as_slice().into();
            for client in subscribers.values() {
                client.push(Push::Matched(pattern.clone(), sent.clone()));
                receivers += 1;
            }
        }
        receivers
    }

    /// Sends `message` to who has subscribed to the sharded `channel`; returns to how many.
    pub fn publish_sharded(&self, channel: &[u8], message: &[u8]) -> usize {
        if self.count.load(Ordering::SeqCst) == 0 {
            return 0;
        }
        let names = self.names();
        let sent = Arc::new(Published { channel: channel.to_vec(), message: message.to_vec() });
        let Some(subscribers) = names[Scope::Shards as usize].get(channel) else { return 0 };
        subscribers.values().for_each(|client| client.push(Push::Sharded(sent.clone())));
        subscribers.len()
    }

    /// The names that somebody has subscribed to and that fit `pattern`.
    pub fn named(&self, scope: Scope, pattern: Option<&[u8]>) -> Vec<Vec<u8>> {
        let names = self.names();
        let fits = |name: &&Vec<u8>| pattern.is_none_or(|pattern| matches(pattern, name));
        names[scope as usize].keys().filter(fits).cloned().collect()
    }

    /// How many clients have subscribed to `name`.
    pub fn subscribers(&self, scope: Scope, name: &[u8]) -> usize {
        self.names()[scope as usize].get(name).map_or(0, BTreeMap::len)
    }

    /// How many names there are.
    pub fn len(&self, scope: Scope) -> usize {
        self.names()[scope as usize].len()
    }

    /// What one client has subscribed to. Cost: a look at every name.
    pub fn of(&self, client: u64) -> Subscriptions {
        let names = self.names();
        let of = |names: &Names| {
            let held = names.iter().filter(|(_, subscribers)| subscribers.contains_key(&client));
            held.map(|(name, _)| name.clone()).collect()
        };
        Subscriptions(names.each_ref().map(of))
    }

    fn count(&self, names: &[Names; 3]) {
        self.count.store(names.iter().map(BTreeMap::len).sum(), Ordering::SeqCst);
    }

    fn names(&self) -> MutexGuard<'_, [Names; 3]> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one client has subscribed to.
#[derive(Debug, Default)]
pub struct Subscriptions([BTreeSet<Vec<u8>>; 3]);

impl Subscriptions {
    pub fn of(&self, scope: Scope) -> &BTreeSet<Vec<u8>> {
        &self.0[scope as usize]
    }

    /// Adds a name, or removes it; whether that changes anything.
    pub fn set(&mut self, scope: Scope, name: &[u8], wanted: bool) -> bool {
        let names = &mut self.0[scope as usize];
        if wanted { names.insert(name.to_vec()) } else { names.remove(name) }
    }

    /// How many there are of each scope.
    pub fn counts(&self) -> [usize; 3] {
        self.0.each_ref().map(BTreeSet::len)
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(BTreeSet::is_empty)
    }
}
