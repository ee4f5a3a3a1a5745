//! Commands together with the keys and channels that they may touch.

use crate::commands::glob::matches;
use crate::commands::rights::{
    self, Access, Categories, NUMBERS, access, categories, channels, find, subcommands,
};
use crate::commands::spec::Spec;
use crate::commands::unnamed_keys;
use crate::commands::{TABLE, lookup};

const WORDS: usize = NUMBERS.div_ceil(64);

/// Why a rule is refused.
pub type Why = &'static str;

pub const SYNTAX: Why = "Syntax error";
const UNKNOWN: Why = "Unknown command or category name in ACL";
const KEYS_AFTER_ALL: Why = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not \
                             valid and does not have any effect. Try 'resetkeys' to start with an \
                             empty list of patterns";
const CHANNELS_AFTER_ALL: Why = "Adding a pattern after the * pattern (or the 'allchannels' flag) \
                                 is not valid and does not have any effect. Try 'resetchannels' to \
                                 start with an empty list of channels";
const FIRST_OF_SUBCOMMAND: Why = "Allowing first-arg of a subcommand is not supported";

/// What is not allowed. The later one is nearer to what would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    Command,
    /// The key that is this argument.
    Key(usize),
    /// The channel that is this argument.
    Channel(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern {
    text: Vec<u8>,
    access: Access,
}

/// Commands, keys and channels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// A bit for each number of a command or subcommand.
    commands: [u64; WORDS],
    /// Commands that are allowed with this first argument only.
    first_args: Vec<(usize, Vec<u8>)>,
    /// The rules that made the two, as they are shown; none: `-@all`.
    rules: Vec<String>,
    all_keys: bool,
    keys: Vec<KeyPattern>,
    all_channels: bool,
    channels: Vec<Vec<u8>>,
}

impl Selector {
    /// Everything.
    pub fn all() -> Self {
        let mut all = Self { all_keys: true, all_channels: true, ..Self::default() };
        all.all_commands(true);
        all
    }

    /// Whether it allows every command on every key and channel.
    pub fn allows_all(&self) -> bool {
        self.all_keys && self.all_channels && (0..NUMBERS).all(|number| self.has(number))
    }

    /// Whether it allows `words`, a request for `spec`.
    pub fn check(&self, spec: &Spec, words: &[&[u8]]) -> Result<(), Denied> {
        let number = rights::number(spec, words);
        let with_first = |(of, first): &(usize, Vec<u8>)| {
            *of == number && words.get(1).is_some_and(|word| word.eq_ignore_ascii_case(first))
        };
        let named = self.has(number) || self.first_args.iter().any(with_first);
        if !named && !spec.flags.contains(&"no_auth") {
            return Err(Denied::Command);
        }
        if let Some(place) = self.denied_key(spec, words) {
            return Err(Denied::Key(place));
        }
        let denied = |place: &usize| !self.allows_channel(words[*place], spec.name == "psubscribe");
        match channels(spec, words.len()).find(denied) {
            Some(place) => Err(Denied::Channel(place)),
            None => Ok(()),
        }
    }

    /// Whether it allows `channel`. One that is a pattern itself must be given as it is written.
    pub fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let fits = |pattern: &Vec<u8>| match is_pattern {
            true => pattern == channel,
            false => matches(pattern, channel),
        };
        self.all_channels || self.channels.iter().any(fits)
    }

    /// The place of the first key that it does not allow.
    fn denied_key(&self, spec: &Spec, words: &[&[u8]]) -> Option<usize> {
        if self.all_keys {
            return None;
        }
        for (nth, place) in spec.keys.of(words.len(), |place| words[place]).iter().enumerate() {
            let wanted = access(spec, words, nth);
            let fits = |pattern: &KeyPattern| {
                (pattern.access.reads || !wanted.reads)
                    && (pattern.access.writes || !wanted.writes)
                    && matches(&pattern.text, words[place])
            };
            if !self.keys.iter().any(fits) {
                return Some(place);
            }
        }
        let (written, patterns) = unnamed_keys(spec, words);
        let writes = |place: usize| {
            let fits = |key: &&KeyPattern| key.access.writes && matches(&key.text, words[place]);
            self.keys.iter().any(|key| fits(&key))
        };
        if let Some(place) = written.into_iter().find(|place| !writes(*place)) {
            return Some(place);
        }
        // Nobody knows which keys: as Redis, only for who may read all.
        patterns.then_some(1)
    }

    /// Applies a rule.
    pub fn apply(&mut self, rule: &[u8]) -> Result<(), Why> {
        let lower = rule.to_ascii_lowercase();
        match (lower.as_slice(), rule) {
            (b"allkeys" | b"~*", _) => (self.all_keys, self.keys) = (true, Vec::new()),
            (b"resetkeys", _) => (self.all_keys, self.keys) = (false, Vec::new()),
            (b"allchannels" | b"&*", _) => (self.all_channels, self.channels) = (true, Vec::new()),
            (b"resetchannels", _) => (self.all_channels, self.channels) = (false, Vec::new()),
            (b"allcommands" | b"+@all", _) => self.all_commands(true),
            (b"nocommands" | b"-@all", _) => self.all_commands(false),
            (_, [b'~' | b'%', ..]) => return self.key_pattern(rule),
            (_, [b'&', pattern @ ..]) => return self.channel(pattern),
            ([sign @ (b'+' | b'-'), b'@', name @ ..], _) => {
                let category = Categories::named(name).ok_or(UNKNOWN)?;
                for number in (0..NUMBERS).filter(|number| categories(*number).meets(category)) {
                    self.allow(number, *sign == b'+');
                }
                self.note_rule(&lower);
            }
            ([b'-', name @ ..], _) => {
                self.allow(find(name).ok_or(UNKNOWN)?, false);
                self.note_rule(&lower);
            }
            ([b'+', name @ ..], _) => return self.allow_named(name, &lower),
            _ => return Err(SYNTAX),
        }
        Ok(())
    }

    fn allow_named(&mut self, name: &[u8], rule: &[u8]) -> Result<(), Why> {
        if let Some(number) = find(name) {
            self.allow(number, true);
        } else {
            let (name, first) = split(name).ok_or(UNKNOWN)?;
            let spec = lookup(name).ok_or(UNKNOWN)?;
            match split(first) {
                Some((sub, _)) if rights::subcommand(spec, sub).is_some() => {
                    return Err(FIRST_OF_SUBCOMMAND);
                }
                _ if rights::has_subcommands(spec)
                    || first.is_empty()
                    || split(first).is_some() =>
                {
                    return Err(UNKNOWN);
                }
                _ => {}
            }
            let allowed = (usize::from(spec.number), first.to_vec());
            if !self.first_args.contains(&allowed) {
                self.first_args.push(allowed);
            }
        }
        self.note_rule(rule);
        Ok(())
    }

    fn key_pattern(&mut self, rule: &[u8]) -> Result<(), Why> {
        if self.all_keys {
            return Err(KEYS_AFTER_ALL);
        }
        let tilde = rule.iter().position(|byte| *byte == b'~').ok_or(SYNTAX)?;
        let (flags, text) = (&rule[..tilde], &rule[tilde + 1..]);
        let access = match flags.to_ascii_uppercase().as_slice() {
            b"" | b"%RW" | b"%WR" => Access { reads: true, writes: true },
            b"%R" => Access { reads: true, writes: false },
            b"%W" => Access { reads: false, writes: true },
            _ => return Err(SYNTAX),
        };
        if text.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0) {
            return Err(SYNTAX);
        }
        match self.keys.iter_mut().find(|known| known.text == text) {
            Some(known) => {
                known.access.reads |= access.reads;
                known.access.writes |= access.writes;
            }
            None => self.keys.push(KeyPattern { text: text.to_vec(), access }),
        }
        Ok(())
    }

    fn channel(&mut self, pattern: &[u8]) -> Result<(), Why> {
        if self.all_channels {
            return Err(CHANNELS_AFTER_ALL);
        }
        if pattern.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0) {
            return Err(SYNTAX);
        }
        if !self.channels.iter().any(|known| known == pattern) {
            self.channels.push(pattern.to_vec());
        }
        Ok(())
    }

    fn all_commands(&mut self, allowed: bool) {
        self.commands = [if allowed { u64::MAX } else { 0 }; WORDS];
        self.first_args.clear();
        self.rules.clear();
        if allowed {
            self.rules.push("+@all".into());
        }
    }

    /// Allows a command with all of its subcommands, or a subcommand.
    fn allow(&mut self, number: usize, allowed: bool) {
        self.first_args.retain(|(of, _)| *of != number);
        let subs = TABLE.get(number).into_iter().flat_map(subcommands).map(|(sub, _)| sub);
        for number in subs.chain([number]) {
            let (word, bit) = (&mut self.commands[number / 64], 1 << (number % 64));
            *word = if allowed { *word | bit } else { *word & !bit };
        }
    }

    fn has(&self, number: usize) -> bool {
        self.commands[number / 64] & 1 << (number % 64) != 0
    }

    /// Shows `rule`, and none of those any more that it makes void: on the same, or on a part of
    /// it.
    fn note_rule(&mut self, rule: &[u8]) {
        let rule = String::from_utf8_lossy(rule).into_owned();
        let part = format!("{}|", &rule[1..]);
        self.rules.retain(|known| known[1..] != rule[1..] && !known[1..].starts_with(&part));
        self.rules.push(rule);
    }

    /// The rules of its commands.
    pub fn commands_text(&self) -> String {
        match self.rules.first().map(String::as_str) {
            Some("+@all") => self.rules.join(" "),
            Some(_) => format!("-@all {}", self.rules.join(" ")),
            None => "-@all".into(),
        }
    }

    /// The patterns of its keys.
    pub fn keys_text(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let texts = self.keys.iter().map(|pattern| {
            let sign: &[u8] = match pattern.access {
                Access { reads: true, writes: true } => b"~",
                Access { reads: true, .. } => b"%R~",
                Access { .. } => b"%W~",
            };
            [sign, &pattern.text].concat()
        });
        texts.collect::<Vec<_>>().join(&b' ')
    }

    /// The patterns of its channels.
    pub fn channels_text(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let texts = self.channels.iter().map(|pattern| [b"&", pattern.as_slice()].concat());
        texts.collect::<Vec<_>>().join(&b' ')
    }

    /// All of it, as rules.
    pub fn describe(&self) -> Vec<u8> {
        let reset: &[u8] = if self.all_channels { b"" } else { b"resetchannels" };
        let commands = self.commands_text().into_bytes();
        let parts = [self.keys_text(), reset.to_vec(), self.channels_text(), commands];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(&b' ')
    }
}

/// What stands before and behind the first bar.
fn split(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let bar = name.iter().position(|byte| *byte == b'|')?;
    Some((&name[..bar], &name[bar + 1..]))
}
