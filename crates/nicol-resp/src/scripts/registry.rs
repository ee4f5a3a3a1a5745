//! The scripts that EVALSHA finds: those that were loaded or run since the server started.
//!
//! As in Redis they are a cache: a restart empties it, and a client whose script is not there sends
//! it again. All connections of a server share it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha1::{Digest, Sha1};

use super::flags::Flags;
use super::shebang;

/// Bytes of all scripts. Beyond it those that EVAL has brought are forgotten, the oldest first.
const BYTES_MAX: usize = 16 << 20;

/// The digest of a script's text.
pub type Sha = [u8; 20];

/// Whether a text can be compiled. Errors: what is wrong with it.
pub type Check = fn(&[u8]) -> Result<(), Vec<u8>>;

/// A script that can be run.
#[derive(Debug)]
pub struct Script {
    pub sha: Sha,
    pub text: Vec<u8>,
    pub flags: Flags,
    /// SCRIPT LOAD has brought it: it stays.
    stays: bool,
}

#[derive(Debug, Default)]
struct State {
    known: BTreeMap<Sha, Arc<Script>>,
    /// Those that EVAL has brought, in order.
    passing: VecDeque<Sha>,
    bytes: usize,
}

/// All scripts of a server.
#[derive(Debug, Default)]
pub struct Scripts(Mutex<State>);

impl Scripts {
    /// The script of `text`, which is known from now on; with `stays` until SCRIPT FLUSH.
    ///
    /// # Errors
    /// What is wrong with it, as the command answers it.
    pub fn learn(&self, text: &[u8], stays: bool, check: Check) -> Result<Arc<Script>, Vec<u8>> {
        let sha = Sha1::digest(text).into();
        let known = self.state().known.get(&sha).cloned();
        if let Some(script) = known.filter(|script| script.stays || !stays) {
            return Ok(script);
        }
        let flags = shebang::of_script(text)?;
        check(text)?;
        let script = Arc::new(Script { sha, text: text.to_vec(), flags, stays });
        let mut state = self.state();
        state.insert(script.clone());
        if stays && state.bytes > BYTES_MAX {
            state.remove(&sha);
            let text = "ERR the scripts that were loaded take 16 MB: SCRIPT FLUSH forgets them";
            return Err(text.into());
        }
        Ok(script)
    }

    /// The script with this digest in hexadecimal, in any case.
    pub fn find(&self, hex: &[u8]) -> Option<Arc<Script>> {
        self.state().known.get(&parse(hex)?).cloned()
    }

    /// SCRIPT FLUSH.
    pub fn flush(&self) {
        *self.state() = State::default();
    }

    /// How many there are, and their bytes.
    pub fn counts(&self) -> (usize, usize) {
        let state = self.state();
        (state.known.len(), state.bytes)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn insert(&mut self, script: Arc<Script>) {
        let sha = script.sha;
        self.remove(&sha);
        self.bytes += script.text.len();
        if !script.stays {
            self.passing.push_back(sha);
        }
        self.known.insert(sha, script);
        while self.bytes > BYTES_MAX
            && let Some(oldest) = self.passing.pop_front()
        {
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, sha: &Sha) {
        if let Some(script) = self.known.remove(sha) {
            self.bytes -= script.text.len();
            self.passing.retain(|passing| passing != sha);
        }
    }
}

/// A digest in hexadecimal.
pub fn hex(sha: &Sha) -> String {
    sha.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse(hex: &[u8]) -> Option<Sha> {
    let (pairs, rest) = hex.as_chunks::<2>();
    let mut sha = Sha::default();
    if pairs.len() != sha.len() || !rest.is_empty() {
        return None;
    }
    for (byte, pair) in sha.iter_mut().zip(pairs) {
        let digit = |digit: u8| (digit as char).to_digit(16);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(sha)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_eval_has_brought_makes_room_and_what_was_loaded_stays() {
        let scripts = Scripts::default();
        let text = |number: usize| format!("return '{number}{}'", "x".repeat(1 << 20)).into_bytes();
        let kept = scripts.learn(&text(100), true, check).unwrap();
        let first = scripts.learn(&text(0), false, check).unwrap();
        for number in 1..20 {
            scripts.learn(&text(number), false, check).unwrap();
        }
        assert!(scripts.find(hex(&kept.sha).to_uppercase().as_bytes()).is_some());
        assert!(scripts.find(hex(&first.sha).as_bytes()).is_none());
        let (count, bytes) = scripts.counts();
        assert!(count == 15 && bytes <= BYTES_MAX, "{count} scripts of {bytes} bytes");
        scripts.flush();
        assert!(scripts.find(hex(&kept.sha).as_bytes()).is_none());
        assert!(scripts.find(b"x").is_none());
    }

    fn check(text: &[u8]) -> Result<(), Vec<u8>> {
        if text == b"bad(" { Err(b"bad".to_vec()) } else { Ok(()) }
    }

    #[test]
    fn what_is_no_script_is_not_kept() {
        let scripts = Scripts::default();
        assert_eq!(scripts.learn(b"bad(", true, check).unwrap_err(), b"bad");
        assert_eq!(scripts.counts(), (0, 0));
    }
}
