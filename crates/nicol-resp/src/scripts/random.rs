//! `math.random` as Redis has it: the 48-bit generator of C's `drand48`, the same everywhere.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Function, Lua, MultiValue, Result};

use super::raise::argument::{number, wrong};
use super::raise::failure;

const FACTOR: u64 = 0x5_deec_e66d;
const SUMMAND: u64 = 0xb;
const MASK: u64 = (1 << 48) - 1;
/// The lowest bits of a state that begins.
const BEGIN: u64 = 0x330e;
/// The largest number that is drawn.
const MAX: u64 = i32::MAX as u64;

/// The generator of a machine.
#[derive(Clone, Debug, Default)]
pub struct Random(Rc<Cell<u64>>);

impl Random {
    /// Begins anew, from the lowest 32 bits of `seed`.
    pub fn seed(&self, seed: u64) {
        self.0.set((seed & 0xffff_ffff) << 16 | BEGIN);
    }

    fn draw(&self) -> u64 {
        let next = self.0.get().wrapping_mul(FACTOR).wrapping_add(SUMMAND) & MASK;
        self.0.set(next);
        next >> 17
    }

    /// `math.random` and `math.randomseed`.
    pub fn functions(&self, lua: &Lua) -> Result<[Function; 2]> {
        let generator = self.clone();
        let random = move |lua: &Lua, args: MultiValue| {
            let drawn = (generator.draw() % MAX) as f64 / MAX as f64;
            let bound = |place: usize| number(lua, &args, place, "random").map(f64::trunc);
            let (low, high) = match args.len() {
                0 => return Ok(drawn),
                1 => (1.0, bound(0)?),
                2 => (bound(0)?, bound(1)?),
                _ => return Err(failure(lua, "wrong number of arguments")),
            };
            if low > high {
                return Err(wrong(lua, args.len() - 1, "random", "interval is empty"));
            }
            Ok((drawn * (high - low + 1.0)).floor() + low)
        };
        let generator = self.clone();
        let seed = move |lua: &Lua, args: MultiValue| {
            generator.seed(number(lua, &args, 0, "randomseed")? as i64 as u64);
            Ok(())
        };
        Ok([lua.create_function(random)?, lua.create_function(seed)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_redis() {
        let random = Random::default();
        random.seed(1);
        let first = (random.draw() % MAX) as f64 / MAX as f64;
        // What redis-server 7.0.15 answers to `math.randomseed(1) return math.random()`.
        assert!((first - 0.041_630_344_484_761).abs() < 1e-14, "{first}");
    }
}
