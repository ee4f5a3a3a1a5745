//! `bit`: operations on 32 bits, as in Lua BitOp.

use mlua::{Lua, MultiValue, Result, Table, Value};

use super::super::raise::{argument, failure};

/// The table of the library.
pub fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    let one = |name: &'static str, run: fn(i32) -> i32| {
        table.raw_set(
            name,
            lua.create_function(move |lua, args: MultiValue| {
                Ok(f64::from(run(bits(lua, &args, 0, name)?)))
            })?,
        )
    };
    one("tobit", |bits| bits)?;
    one("bnot", |bits| !bits)?;
    one("bswap", i32::swap_bytes)?;
    let fold = |name: &'static str, run: fn(i32, i32) -> i32| {
        table.raw_set(
            name,
            lua.create_function(move |lua, args: MultiValue| {
                let mut all = bits(lua, &args, 0, name)?;
                for place in 1..args.len() {
                    all = run(all, bits(lua, &args, place, name)?);
                }
                Ok(f64::from(all))
            })?,
        )
    };
    fold("band", |a, b| a & b)?;
    fold("bor", |a, b| a | b)?;
    fold("bxor", |a, b| a ^ b)?;
    let shift = |name: &'static str, run: fn(i32, u32) -> i32| {
        table.raw_set(
            name,
            lua.create_function(move |lua, args: MultiValue| {
                let value = bits(lua, &args, 0, name)?;
                Ok(f64::from(run(value, bits(lua, &args, 1, name)? as u32 & 31)))
            })?,
        )
    };
    shift("lshift", |value, by| ((value as u32) << by) as i32)?;
    shift("rshift", |value, by| (value as u32 >> by) as i32)?;
    shift("arshift", |value, by| value >> by)?;
    shift("rol", |value, by| value.rotate_left(by))?;
    shift("ror", |value, by| value.rotate_right(by))?;
    table.raw_set("tohex", lua.create_function(to_hex)?)?;
    Ok(table)
}

/// Adding it leaves the integer that is nearest in the lowest 32 bits.
const ROUNDING: f64 = 6_755_399_441_055_744.0;

fn bits(lua: &Lua, args: &MultiValue, place: usize, name: &str) -> Result<i32> {
    let number = argument::number(lua, args, place, name)?;
    Ok((number + ROUNDING).to_bits() as u32 as i32)
}

fn to_hex(lua: &Lua, args: MultiValue) -> Result<mlua::LuaString> {
    let value = bits(lua, &args, 0, "tohex")? as u32;
    let width = match args.get(1) {
        None | Some(Value::Nil) => 8,
        Some(_) => bits(lua, &args, 1, "tohex")?,
    };
    let digits = width.unsigned_abs().min(8) as usize;
    let text = match width < 0 {
        true => format!("{value:08X}"),
        false => format!("{value:08x}"),
    };
    lua.create_string(&text[8 - digits..]).map_err(|_| failure(lua, "not enough memory"))
}
