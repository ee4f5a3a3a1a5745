//! A user: passwords, and selectors of commands and keys.

use std::fmt;

use sha2::{Digest, Sha256};

use super::names::DEFAULT;
use super::selector::{Denied, SYNTAX, Selector, Why};
use crate::commands::spec::Spec;

const BAD_HASH: Why = "The password hash must be exactly 64 characters and contain only lowercase \
                       hexadecimal characters";
const NO_SUCH_PASSWORD: Why = "The password you are trying to remove from the user does not exist";

/// A password's SHA-256: no password is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash([u8; 32]);

impl Hash {
    pub fn of(password: &[u8]) -> Self {
        Self(Sha256::digest(password).into())
    }

    /// Reads 64 lower-case hexadecimal digits.
    fn parse(text: &[u8]) -> Option<Self> {
        let (mut hash, (pairs, rest)) = ([0; 32], text.as_chunks::<2>());
        if pairs.len() != hash.len() || !rest.is_empty() {
            return None;
        }
        for (byte, pair) in hash.iter_mut().zip(pairs) {
            let digit = |digit: u8| match digit {
                b'0'..=b'9' => Some(digit - b'0'),
                b'a'..=b'f' => Some(digit - b'a' + 10),
                _ => None,
            };
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(hash))
    }

    /// Whether it is `other`, in a time that does not tell where they differ.
    fn is(&self, other: &Self) -> bool {
        let differ = |sum: u8, (a, b): (&u8, &u8)| sum | std::hint::black_box(a ^ b);
        self.0.iter().zip(&other.0).fold(0, differ) == 0
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hash)")
    }
}

/// A rule that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    Rule {
        rule: Vec<u8>,
        why: Why,
    },
    /// A selector without its closing parenthesis.
    Unmatched {
        start: Vec<u8>,
    },
}

impl Refused {
    /// Its text, where it is said of `what`.
    pub fn text(&self, what: &str) -> Vec<u8> {
        match self {
            Self::Rule { rule, why } => {
                [what.as_bytes(), b" '", rule, b"': ", why.as_bytes()].concat()
            }
            Self::Unmatched { start } => {
                [&b"Unmatched parenthesis in acl selector starting at '"[..], start, b"'."].concat()
            }
        }
    }
}

/// Who may log in, by what, and to do what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: Vec<u8>,
    is_on: bool,
    /// Whether any password is right.
    no_pass: bool,
    /// `sanitize-payload` or the opposite, if it was said. Nothing here takes payloads.
    sanitizes: Option<bool>,
    passwords: Vec<Hash>,
    root: Selector,
    /// A request is allowed if one of these allows it, or the root.
    selectors: Vec<Selector>,
    /// Whether nothing is refused.
    is_free: bool,
    /// The rules that say what it may do, for the scripts that it runs; nothing if all.
    rights: Vec<u8>,
}

impl User {
    /// A user that may do nothing.
    pub fn new(name: &[u8]) -> Self {
        Self {
            name: name.to_vec(),
            is_on: false,
            no_pass: false,
            sanitizes: None,
            passwords: Vec::new(),
            root: Selector::default(),
            selectors: Vec::new(),
            is_free: false,
            rights: Vec::new(),
        }
    }

    /// The default user of a server with this password.
    pub fn default_user(password: Option<&str>) -> Self {
        Self {
            is_on: true,
            no_pass: password.is_none(),
            passwords: password.into_iter().map(|text| Hash::of(text.as_bytes())).collect(),
            root: Selector::all(),
            is_free: true,
            ..Self::new(DEFAULT)
        }
    }

    /// Whether any password is right.
    pub fn takes_any(&self) -> bool {
        self.is_on && self.no_pass
    }

    /// Whether it may log in with `password`. The time tells no more than how many there are.
    pub fn accepts(&self, password: &[u8]) -> bool {
        let given = Hash::of(password);
        let known = self.passwords.iter().fold(false, |known, hash| known | hash.is(&given));
        self.is_on && (self.no_pass || known)
    }

    /// Whether nothing is refused.
    pub fn is_free(&self) -> bool {
        self.is_free
    }

    /// Whether it may have `words`, a request for `spec`, executed. Errors: what comes nearest.
    pub fn check(&self, spec: &Spec, words: &[&[u8]]) -> Result<(), Denied> {
        let mut denied = Denied::Command;
        for selector in [&self.root].into_iter().chain(&self.selectors) {
            match selector.check(spec, words) {
                Ok(()) => return Ok(()),
                Err(other) => denied = denied.max(other),
            }
        }
        Err(denied)
    }

    /// Whether it may listen to `channel`, or to a pattern of channels.
    pub fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let all = [&self.root].into_iter().chain(&self.selectors);
        all.into_iter().any(|selector| selector.allows_channel(channel, is_pattern))
    }

    /// Applies rules: all, or the first that is refused.
    pub fn apply(&mut self, rules: &[&[u8]]) -> Result<(), Refused> {
        for rule in merged(rules)? {
            self.apply_one(&rule).map_err(|why| Refused::Rule { rule, why })?;
        }
        self.is_free = self.root.allows_all();
        self.rights = if self.is_free { Vec::new() } else { self.words_of_rights() };
        Ok(())
    }

    fn apply_one(&mut self, rule: &[u8]) -> Result<(), Why> {
        match (rule.to_ascii_lowercase().as_slice(), rule) {
            (b"on", _) => self.is_on = true,
            (b"off", _) => self.is_on = false,
            (b"nopass", _) => (self.no_pass, self.passwords) = (true, Vec::new()),
            (b"resetpass", _) => (self.no_pass, self.passwords) = (false, Vec::new()),
            (b"sanitize-payload", _) => self.sanitizes = Some(true),
            (b"skip-sanitize-payload", _) => self.sanitizes = Some(false),
            (b"reset", _) => {
                *self = Self { sanitizes: Some(true), ..Self::new(&self.name) };
            }
            (b"clearselectors", _) => self.selectors.clear(),
            (_, [b'>', password @ ..]) => self.add(Hash::of(password)),
            (_, [b'<', password @ ..]) => return self.forget(Hash::of(password)),
            (_, [b'#', hash @ ..]) => self.add(Hash::parse(hash).ok_or(BAD_HASH)?),
            (_, [b'!', hash @ ..]) => return self.forget(Hash::parse(hash).ok_or(BAD_HASH)?),
            (_, [b'(', rules @ .., b')']) => {
                let mut selector = Selector::default();
                let words = rules.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
                words.into_iter().try_for_each(|rule| selector.apply(rule))?;
                self.selectors.push(selector);
            }
            (_, [b'(', ..]) => return Err(SYNTAX),
            _ => return self.root.apply(rule),
        }
        Ok(())
    }

    fn add(&mut self, hash: Hash) {
        self.no_pass = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn forget(&mut self, hash: Hash) -> Result<(), Why> {
        let place = self.passwords.iter().position(|known| *known == hash);
        self.passwords.remove(place.ok_or(NO_SUCH_PASSWORD)?);
        Ok(())
    }

    /// The words that say what it is apart from passwords and selectors.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        flags.extend(self.no_pass.then_some("nopass"));
        flags.extend(self.sanitizes.map(|does| match does {
            true => "sanitize-payload",
            false => "skip-sanitize-payload",
        }));
        flags
    }

    pub fn passwords(&self) -> &[Hash] {
        &self.passwords
    }

    /// What it may do of itself, and by its further selectors.
    pub fn selectors(&self) -> (&Selector, &[Selector]) {
        (&self.root, &self.selectors)
    }

    /// The rules that say what it may do; nothing if it may do all.
    pub fn rights(&self) -> &[u8] {
        &self.rights
    }

    fn words_of_rights(&self) -> Vec<u8> {
        let mut words = self.root.describe();
        for selector in &self.selectors {
            words.extend([b" (", &selector.describe()[..], b")"].concat());
        }
        words
    }

    /// The rules that make it, behind its name.
    pub fn describe(&self) -> Vec<u8> {
        let mut line = [b"user ", self.name.as_slice()].concat();
        for flag in self.flags() {
            line.push(b' ');
            line.extend_from_slice(flag.as_bytes());
        }
        for hash in &self.passwords {
            line.extend_from_slice(format!(" #{hash}").as_bytes());
        }
        line.push(b' ');
        line.extend(self.root.describe());
        for selector in &self.selectors {
            line.extend_from_slice(b" (");
            line.extend(selector.describe());
            line.push(b')');
        }
        line
    }
}

/// The rules with those of a selector, from its opening to its closing parenthesis, as one.
fn merged(rules: &[&[u8]]) -> Result<Vec<Vec<u8>>, Refused> {
    let (mut all, mut open): (Vec<Vec<u8>>, Option<Vec<u8>>) = (Vec::new(), None);
    for rule in rules {
        let rule = match open.take() {
            Some(before) => [before.as_slice(), rule].join(&b' '),
            None => rule.to_vec(),
        };
        match rule.as_slice() {
            [b'(', .., b')'] => all.push(rule),
            [b'(', ..] => open = Some(rule),
            _ => all.push(rule),
        }
    }
    match open {
        None => Ok(all),
        Some(rule) => {
            let words: Vec<_> = rule.split(|byte| *byte == b' ').collect();
            Err(Refused::Unmatched { start: words[0].to_vec() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lookup;

    fn user(rules: &str) -> User {
        let mut user = User::new(b"u");
        let rules: Vec<_> = rules.split(' ').map(str::as_bytes).collect();
        user.apply(&rules).unwrap();
        user
    }

    fn asks(user: &User, words: &str) -> Result<(), Denied> {
        let words: Vec<_> = words.split(' ').map(str::as_bytes).collect();
        user.check(lookup(words[0]).unwrap(), &words)
    }

    #[test]
    fn commands_and_keys_must_both_be_allowed_by_one_selector() {
        let user = user("on nopass ~k* +@read -mget (~x* +set)");
        assert_eq!(asks(&user, "get k1"), Ok(()));
        assert_eq!(asks(&user, "get x1"), Err(Denied::Key(1)));
        assert_eq!(asks(&user, "mget k1"), Err(Denied::Command));
        assert_eq!(asks(&user, "set k1 v"), Err(Denied::Key(1)));
        assert_eq!(asks(&user, "set x1 v"), Ok(()));
        assert_eq!(asks(&user, "hello 3"), Ok(()), "who is not logged in may have it too");
        assert!(!user.is_free());
    }

    #[test]
    fn keys_that_are_only_written_are_not_read() {
        let user = user("~rw %R~r* %W~w* +@all");
        for allowed in [
            "get r1",
            "set w1 v",
            "getset rw v",
            "copy r1 w1",
            "exists w1",
            "append w1 x",
            "del w1",
            "mset w1 a w2 b",
            "mget r1 r2 rw",
        ] {
            assert_eq!(asks(&user, allowed), Ok(()), "{allowed}");
        }
        for (refused, place) in [
            ("get w1", 1),
            ("set r1 v", 1),
            ("set w1 v get", 1),
            ("copy w1 w2", 1),
            ("copy r1 r2", 2),
            ("incr w1", 1),
            ("mset w1 a r1 b", 3),
            ("exists q", 1),
        ] {
            assert_eq!(asks(&user, refused), Err(Denied::Key(place)), "{refused}");
        }
    }

    #[test]
    fn subcommands_have_rights_of_their_own() {
        let user = user("+client -client|list +config|get +select|3");
        assert_eq!(asks(&user, "client id"), Ok(()));
        assert_eq!(asks(&user, "client list"), Err(Denied::Command));
        assert_eq!(asks(&user, "client nosuch"), Ok(()), "it is answered that it does not exist");
        assert_eq!(asks(&user, "config get x"), Ok(()));
        assert_eq!(asks(&user, "config set x y"), Err(Denied::Command));
        assert_eq!(asks(&user, "config"), Err(Denied::Command));
        assert_eq!(asks(&user, "select 3"), Ok(()));
        assert_eq!(asks(&user, "select 4"), Err(Denied::Command));
        let text = user.describe();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "user u off resetchannels -@all +client -client|list +config|get +select|3"
        );
    }

    #[test]
    fn a_user_is_what_its_description_says() {
        let texts = [
            "on >secret >other ~k* %R~r* &c* -@all +@read -get +config|get (~x +set &y) (+get)",
            "nopass allkeys allchannels +@all -@dangerous skip-sanitize-payload",
            "reset %R~a %W~a ~b resetchannels",
        ];
        for rules in texts {
            let made = user(rules);
            let text = made.describe();
            let words: Vec<_> = text.split(|byte| *byte == b' ').skip(2).collect();
            let mut again = User::new(b"u");
            again.apply(&words).unwrap();
            assert_eq!(again, made, "{}", String::from_utf8_lossy(&text));
        }
    }

    #[test]
    fn a_password_is_judged_by_its_hash() {
        let mut user = user("on >secret");
        assert!(user.accepts(b"secret") && !user.accepts(b"Secret") && !user.accepts(b""));
        assert!(!format!("{user:?}").contains("secret"));
        user.apply(&[b"<secret"]).unwrap();
        assert!(!user.accepts(b"secret"));
        user.apply(&[format!("#{}", Hash::of(b"x")).as_bytes(), b"off"]).unwrap();
        assert!(!user.accepts(b"x"), "it is off");
        user.apply(&[b"on"]).unwrap();
        assert!(user.accepts(b"x"));
    }
}
