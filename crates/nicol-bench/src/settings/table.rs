//! Rows of a family's table of settings: a name, the values, the help and the effect, from which
//! `--set` is parsed, its help is listed and its errors are written.

use std::ops::RangeInclusive;

use nicol_core::names::did_you_mean;
use nicol_core::units::{Bytes, Nanos};

use crate::refused::Unfit;

/// From this power of two on a bound is written as one.
const POWER_MIN: u64 = 1 << 17;

/// The values of a setting: words, and numbers within a range.
#[derive(Clone, Debug)]
pub(crate) struct Values<T> {
    words: Vec<(&'static str, T)>,
    numbers: Option<Numbers<T>>,
}

/// Numbers within a range.
#[derive(Clone, Debug)]
struct Numbers<T> {
    range: RangeInclusive<u64>,
    /// The value of a number in the range.
    of: fn(u64) -> Option<T>,
    /// The number of a value.
    back: fn(&T) -> Option<u64>,
}

/// Words, and the value of each.
pub(crate) fn words<T>(words: impl IntoIterator<Item = (&'static str, T)>) -> Values<T> {
    Values { words: words.into_iter().collect(), numbers: None }
}

/// The values `on` and `off`.
pub(crate) fn switch() -> Values<bool> {
    words([("on", true), ("off", false)])
}

/// Numbers, where `of` and `back` convert to and from the field's type.
pub(crate) fn numbers_as<T>(
    range: RangeInclusive<u64>,
    of: fn(u64) -> Option<T>,
    back: fn(&T) -> Option<u64>,
) -> Values<T> {
    Values { words: Vec::new(), numbers: Some(Numbers { range, of, back }) }
}

/// The numbers of `range`.
pub(crate) fn numbers<T>(range: RangeInclusive<u64>) -> Values<T>
where
    T: TryFrom<u64> + Copy,
    u64: TryFrom<T>,
{
    numbers_as(range, |number| T::try_from(number).ok(), |value| u64::try_from(*value).ok())
}

/// Microseconds in `range`.
pub(crate) fn micros(range: RangeInclusive<u64>) -> Values<Nanos> {
    numbers_as(range, |us| Some(Nanos::from_micros(us)), |time| Some(time.0 / 1_000))
}

/// Numbers of bytes in `range`.
pub(crate) fn bytes(range: RangeInclusive<u64>) -> Values<Bytes> {
    numbers_as(range, |bytes| Some(Bytes(bytes)), |bytes| Some(bytes.0))
}

impl<T: Clone + PartialEq> Values<T> {
    /// These, and the numbers of `others`.
    pub(crate) fn or(self, others: Self) -> Self {
        Self { numbers: others.numbers, ..self }
    }

    fn parse(&self, text: &str) -> Result<T, Unfit> {
        let number = text.parse::<u64>().ok();
        let is_meant =
            |word: &str| word == text || number.is_some() && word.parse::<u64>().ok() == number;
        if let Some((_, value)) = self.words.iter().find(|(word, _)| is_meant(word)) {
            return Ok(value.clone());
        }
        let among = self.numbers.as_ref().zip(number);
        let among = among.filter(|(numbers, given)| numbers.range.contains(given));
        among
            .and_then(|(numbers, given)| (numbers.of)(given))
            .ok_or_else(|| self.unfit(text, number))
    }

    /// Why `text` is none of the values, and which there are.
    fn unfit(&self, text: &str, number: Option<u64>) -> Unfit {
        let range = self.numbers.as_ref().map(|Numbers { range, .. }| range);
        let known = self.words.iter().map(|(word, _)| *word);
        let why = match (range, number) {
            (Some(_), Some(_)) => "it is out of range".to_owned(),
            (Some(_), None) if self.words.is_empty() => "it is no whole number".to_owned(),
            _ => format!("there is no such value{}", did_you_mean(text, known.clone())),
        };
        let range = range.map(|range| format!("{} to {}", range.start(), range.end()));
        let mut all: Vec<String> = known.map(str::to_owned).chain(range).collect();
        let remedy = match (all.pop(), all.is_empty()) {
            (Some(last), false) => format!("choose {} or {last}", all.join(", ")),
            (Some(only), true) => format!("give {only}"),
            (None, _) => "leave it out".to_owned(),
        };
        Unfit::new(why, remedy)
    }

    /// The text of `value`, if it is one of these.
    fn text(&self, value: &T) -> Option<String> {
        let word = self.words.iter().find(|(_, known)| known == value);
        word.map(|(word, _)| (*word).to_owned()).or_else(|| {
            let Numbers { range, back, .. } = self.numbers.as_ref()?;
            back(value).filter(|number| range.contains(number)).map(|number| number.to_string())
        })
    }
}

/// The effect of a setting on a configuration.
trait Effect<C> {
    fn set(&self, config: &mut C, text: &str) -> Result<(), Unfit>;

    /// The value that it has, as it would be given; `None` if no text says it.
    fn value(&self, config: &mut C) -> Option<String>;
}

/// A field that is one of the values.
struct Field<C, T> {
    values: Values<T>,
    part: fn(&mut C) -> &mut T,
}

impl<C, T: Clone + PartialEq> Effect<C> for Field<C, T> {
    fn set(&self, config: &mut C, text: &str) -> Result<(), Unfit> {
        *(self.part)(config) = self.values.parse(text)?;
        Ok(())
    }

    fn value(&self, config: &mut C) -> Option<String> {
        self.values.text((self.part)(config))
    }
}

/// A value that is kept in another form.
struct Derived<C, T> {
    values: Values<T>,
    get: fn(&C) -> Option<T>,
    set: fn(&mut C, T),
}

impl<C, T: Clone + PartialEq> Effect<C> for Derived<C, T> {
    fn set(&self, config: &mut C, text: &str) -> Result<(), Unfit> {
        (self.set)(config, self.values.parse(text)?);
        Ok(())
    }

    fn value(&self, config: &mut C) -> Option<String> {
        self.values.text(&(self.get)(config)?)
    }
}

/// A setting of a part of the configuration.
struct Within<P, F> {
    of_part: Box<dyn Effect<P>>,
    part: F,
}

impl<C, P, F: Fn(&mut C) -> Result<&mut P, Unfit>> Effect<C> for Within<P, F> {
    fn set(&self, config: &mut C, text: &str) -> Result<(), Unfit> {
        self.of_part.set((self.part)(config)?, text)
    }

    fn value(&self, config: &mut C) -> Option<String> {
        (self.part)(config).ok().and_then(|part| self.of_part.value(part))
    }
}

/// A setting that changes or excludes others.
struct Then<C> {
    first: Box<dyn Effect<C>>,
    then: fn(&mut C) -> Result<(), Unfit>,
}

impl<C> Effect<C> for Then<C> {
    fn set(&self, config: &mut C, text: &str) -> Result<(), Unfit> {
        self.first.set(config, text)?;
        (self.then)(config)
    }

    fn value(&self, config: &mut C) -> Option<String> {
        self.first.value(config)
    }
}

/// A row of a table of settings of the configuration `C`.
pub struct Setting<C> {
    pub name: &'static str,
    /// Its effect in words.
    pub help: &'static str,
    /// The default in words, where it depends on the workload, the world or the hardware, or is
    /// none of the values.
    pub default: Option<&'static str>,
    /// Whether it is in no list. Under such a setting the system is not correct: it is for tests.
    pub is_hidden: bool,
    /// Whether it is applied before the others, since it changes what they change.
    pub(crate) is_first: bool,
    /// The words among its values.
    pub words: Vec<&'static str>,
    /// The numbers among its values.
    pub numbers: Option<RangeInclusive<u64>>,
    effect: Box<dyn Effect<C>>,
}

impl<C: 'static> Setting<C> {
    /// A setting of the field `part`.
    pub(crate) fn new<T: Clone + PartialEq + 'static>(
        name: &'static str,
        values: Values<T>,
        part: fn(&mut C) -> &mut T,
    ) -> Self {
        let (words, numbers) = names(&values);
        Self::row(name, words, numbers, Box::new(Field { values, part }))
    }

    /// A setting of what no field holds in this form. `get` yields the value that holds, if one of
    /// them does.
    pub(crate) fn derived<T: Clone + PartialEq + 'static>(
        name: &'static str,
        values: Values<T>,
        get: fn(&C) -> Option<T>,
        set: fn(&mut C, T),
    ) -> Self {
        let (words, numbers) = names(&values);
        Self::row(name, words, numbers, Box::new(Derived { values, get, set }))
    }

    fn row(
        name: &'static str,
        words: Vec<&'static str>,
        numbers: Option<RangeInclusive<u64>>,
        effect: Box<dyn Effect<C>>,
    ) -> Self {
        let (is_hidden, is_first) = (false, false);
        Self { name, help: "", default: None, is_hidden, is_first, words, numbers, effect }
    }

    pub(crate) fn help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    /// With a default that depends on the workload, the world or the hardware, or is none of the
    /// values, in words.
    pub(crate) fn default(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    /// In no list: under it the system is not correct.
    pub(crate) fn hidden(self) -> Self {
        Self { is_hidden: true, ..self }
    }

    /// Applied before those that are not.
    pub(crate) fn first(self) -> Self {
        Self { is_first: true, ..self }
    }

    /// Followed by `then`, which changes what depends on it, or refuses it beside what is set.
    pub(crate) fn then(self, then: fn(&mut C) -> Result<(), Unfit>) -> Self {
        let first = self.effect;
        Self { effect: Box::new(Then { first, then }), ..self }
    }

    /// The same setting of a configuration of which `C` is a part, if it has that part.
    pub(crate) fn within<W: 'static>(
        self,
        part: impl Fn(&mut W) -> Result<&mut C, Unfit> + 'static,
    ) -> Setting<W> {
        let Self { name, help, default, is_hidden, is_first, words, numbers, effect } = self;
        let effect = Box::new(Within { of_part: effect, part });
        Setting { name, help, default, is_hidden, is_first, words, numbers, effect }
    }

    /// Gives `config` the value that `text` says.
    pub(crate) fn set(&self, config: &mut C, text: &str) -> Result<(), Unfit> {
        self.effect.set(config, text)
    }

    /// The value that it has, as it would be given; `None` if no text says it.
    pub fn value(&self, config: &mut C) -> Option<String> {
        self.effect.value(config)
    }

    /// Its values: words and a range, apart by bars.
    pub(crate) fn values(&self) -> String {
        let bound = |bound: u64| match bound {
            power if power >= POWER_MIN && power.is_power_of_two() => {
                format!("2^{}", power.ilog2())
            }
            other => other.to_string(),
        };
        let range = self.numbers.as_ref();
        let range =
            range.map(|range| format!("{}..{}", bound(*range.start()), bound(*range.end())));
        let words = self.words.iter().map(|word| (*word).to_owned());
        words.chain(range).collect::<Vec<_>>().join("|")
    }
}

fn names<T>(values: &Values<T>) -> (Vec<&'static str>, Option<RangeInclusive<u64>>) {
    let words = values.words.iter().map(|(word, _)| *word).collect();
    (words, values.numbers.as_ref().map(|Numbers { range, .. }| range.clone()))
}
