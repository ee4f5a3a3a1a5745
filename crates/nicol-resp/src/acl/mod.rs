//! Users: who may run which commands on which keys.
//!
//! `user.rs` has what a user may do and the rules that say it, `file.rs` the file in which users
//! are kept, `log.rs` what was refused.

pub mod file;
pub mod log;
pub mod names;
pub mod selector;
pub mod user;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::file::Named;
use self::log::Log;
use self::names::DEFAULT;
use self::user::{Refused, User};
use crate::config::StartError;

/// The users of a server.
#[derive(Debug)]
pub struct Users {
    all: Mutex<Named>,
    /// How often they have changed: whoever has a user looks at this before it acts.
    changes: AtomicU64,
    /// Where they are kept.
    file: Option<PathBuf>,
    pub log: Log,
}

impl Users {
    /// The users of `file`, and the default one, whose password is `password`.
    ///
    /// # Errors
    /// The file cannot be read, a line of it is wrong, or it gives the default user other
    /// passwords.
    pub fn new(password: Option<&str>, file: Option<&Path>) -> Result<Self, StartError> {
        let mut all = match file {
            None => Named::new(),
            Some(path) => file::load(path).map_err(StartError::Acl)?,
        };
        match (all.get(DEFAULT), password, file) {
            (Some(user), Some(password), Some(file)) if !user.accepts(password.as_bytes()) => {
                return Err(StartError::AclPassword { file: file.to_owned() });
            }
            (Some(_), ..) => {}
            (None, ..) => _ = all.insert(DEFAULT.to_vec(), Arc::new(User::default_user(password))),
        }
        let file = file.map(Path::to_owned);
        Ok(Self { all: Mutex::new(all), changes: AtomicU64::new(1), file, log: Log::default() })
    }

    /// How often they have changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub fn get(&self, name: &[u8]) -> Option<Arc<User>> {
        self.all().get(name).cloned()
    }

    /// The user of those who have not said who they are.
    pub fn default_user(&self) -> Arc<User> {
        self.get(DEFAULT).expect("the default user cannot be removed")
    }

    /// Every user, by name.
    pub fn named(&self) -> Named {
        self.all().clone()
    }

    /// Changes a user by rules, or makes one: all rules, or none and the first that was refused.
    pub fn set(&self, name: &[u8], rules: &[&[u8]]) -> Result<(), Refused> {
        let mut all = self.all();
        let mut user = all.get(name).map_or_else(|| User::new(name), |user| User::clone(user));
        user.apply(rules)?;
        all.insert(name.to_vec(), Arc::new(user));
        self.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Removes a user; whether there was one. The default user stays.
    pub fn remove(&self, name: &[u8]) -> bool {
        let mut all = self.all();
        let removed = name != DEFAULT && all.remove(name).is_some();
        self.changes.fetch_add(1, Ordering::Release);
        removed
    }

    /// Where users are kept, if they are.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Replaces all users; the names of those that are gone or have changed. The default user stays
    /// as it is if there is no other.
    pub fn replace(&self, mut new: Named) -> Vec<Vec<u8>> {
        let mut all = self.all();
        if let Some(user) = all.get(DEFAULT) {
            new.entry(DEFAULT.to_vec()).or_insert_with(|| user.clone());
        }
        let changed = |(name, user): &(&Vec<u8>, &Arc<User>)| {
            name.as_slice() != DEFAULT && new.get(*name).is_none_or(|other| other != *user)
        };
        let names = all.iter().filter(changed).map(|(name, _)| name.clone()).collect();
        *all = new;
        self.changes.fetch_add(1, Ordering::Release);
        names
    }

    fn all(&self) -> MutexGuard<'_, Named> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
