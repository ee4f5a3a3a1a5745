//! `cmsgpack`: values in MessagePack, as lua-cmsgpack writes and reads them.

use mlua::{Lua, MultiValue, Result, Table, Value};

use super::super::raise::argument::{number, text};
use super::super::raise::failure;

/// Tables within tables that are written; what is deeper becomes nil.
const NESTING_MAX: usize = 16;
/// Tables within tables that are read.
const READ_NESTING_MAX: usize = 128;

/// The table of the library.
pub fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    table.raw_set("_COPYRIGHT", "The format of lua-cmsgpack")?;
    table.raw_set("_DESCRIPTION", "MessagePack for Lua")?;
    table.raw_set("pack", lua.create_function(pack)?)?;
    let read = |lua: &Lua, args: MultiValue| {
        let data = text(lua, &args, 0, "unpack")?;
        unpack(lua, &data, 0, None)
    };
    table.raw_set("unpack", lua.create_function(read)?)?;
    let one = |lua: &Lua, args: MultiValue| {
        let data = text(lua, &args, 0, "unpack_one")?;
        let offset = optional(lua, &args, 1, "unpack_one")?;
        unpack(lua, &data, offset, Some(1))
    };
    table.raw_set("unpack_one", lua.create_function(one)?)?;
    let limited = |lua: &Lua, args: MultiValue| {
        let data = text(lua, &args, 0, "unpack_limit")?;
        let limit = number(lua, &args, 1, "unpack_limit")? as i64;
        let offset = optional(lua, &args, 2, "unpack_limit")?;
        unpack(lua, &data, offset, Some(limit))
    };
    table.raw_set("unpack_limit", lua.create_function(limited)?)?;
    Ok(table)
}

fn optional(lua: &Lua, args: &MultiValue, place: usize, function: &str) -> Result<i64> {
    match args.get(place) {
        None | Some(Value::Nil) => Ok(0),
        Some(_) => Ok(number(lua, args, place, function)? as i64),
    }
}

fn pack(lua: &Lua, args: MultiValue) -> Result<mlua::LuaString> {
    if args.is_empty() {
        return Err(failure(lua, "bad argument #0 to 'pack' (MessagePack pack needs input.)"));
    }
    let mut out = Vec::new();
    args.iter().try_for_each(|value| write(&mut out, value, 0))?;
    lua.create_string(&out)
}

fn write(out: &mut Vec<u8>, value: &Value, level: usize) -> Result<()> {
    match value {
        Value::Boolean(value) => out.push(if *value { 0xc3 } else { 0xc2 }),
        Value::Integer(value) => integer(out, *value),
        Value::Number(value) => {
            let whole = *value as i64;
            // The largest double that is taken for an integer is below 2^63.
            let is_whole = whole as f64 == *value && *value < i64::MAX as f64;
            match is_whole {
                true => integer(out, whole),
                false => double(out, *value),
            }
        }
        Value::String(text) => {
            let bytes = text.as_bytes();
            length(out, bytes.len(), [0xa0, 0xd9, 0xda, 0xdb]);
            out.extend_from_slice(&bytes);
        }
        Value::Table(table) if level < NESTING_MAX => match array_len(table)? {
            Some(len) => {
                length(out, len, [0x90, 0, 0xdc, 0xdd]);
                for place in 1..=len {
                    write(out, &table.raw_get(place)?, level + 1)?;
                }
            }
            None => {
                let pairs = table.pairs::<Value, Value>().collect::<Result<Vec<_>>>()?;
                length(out, pairs.len(), [0x80, 0, 0xde, 0xdf]);
                for (key, value) in &pairs {
                    write(out, key, level + 1)?;
                    write(out, value, level + 1)?;
                }
            }
        },
        _ => out.push(0xc0),
    }
    Ok(())
}

/// How many elements a table has whose keys are the numbers from 1 on.
fn array_len(table: &Table) -> Result<Option<usize>> {
    let (mut max, mut count) = (0.0_f64, 0_usize);
    for pair in table.pairs::<Value, Value>() {
        let number = match pair?.0 {
            Value::Integer(number) => number as f64,
            Value::Number(number) => number,
            _ => return Ok(None),
        };
        if number < 1.0 || number.fract() != 0.0 {
            return Ok(None);
        }
        max = max.max(number);
        count += 1;
    }
    Ok((max == count as f64).then_some(count))
}

/// Writes a length by its heads: in the byte itself, of 8 bits if there is one, of 16, of 32.
fn length(out: &mut Vec<u8>, len: usize, [own, of_8, of_16, of_32]: [u8; 4]) {
    let own_max = if of_8 == 0 { 15 } else { 31 };
    match len {
        len if len <= own_max => out.push(own | len as u8),
        0..=0xff if of_8 != 0 => out.extend([of_8, len as u8]),
        0..=0xffff => {
            out.push(of_16);
            out.extend((len as u16).to_be_bytes());
        }
        _ => {
            out.push(of_32);
            out.extend((len as u32).to_be_bytes());
        }
    }
}

fn integer(out: &mut Vec<u8>, value: i64) {
    match value {
        0..=0x7f => out.push(value as u8),
        -32..0 => out.push(value as i8 as u8),
        0x80..=0xff => out.extend([0xcc, value as u8]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend((value as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend((value as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            out.push(0xcf);
            out.extend((value as u64).to_be_bytes());
        }
        -0x80..-32 => out.extend([0xd0, value as i8 as u8]),
        -0x8000..-0x80 => {
            out.push(0xd1);
            out.extend((value as i16).to_be_bytes());
        }
        -0x8000_0000..-0x8000 => {
            out.push(0xd2);
            out.extend((value as i32).to_be_bytes());
        }
        _ => {
            out.push(0xd3);
            out.extend(value.to_be_bytes());
        }
    }
}

fn double(out: &mut Vec<u8>, value: f64) {
    let short = value as f32;
    if f64::from(short) == value {
        out.push(0xca);
        out.extend(short.to_be_bytes());
    } else {
        out.push(0xcb);
        out.extend(value.to_be_bytes());
    }
}

/// Why a text was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bad {
    Missing,
    Format,
}

/// Reads from `offset` on, `limit` values if there is one, and says before them where it ended.
fn unpack(lua: &Lua, data: &[u8], offset: i64, limit: Option<i64>) -> Result<MultiValue> {
    let len = data.len();
    if offset < 0 || limit.is_some_and(|limit| limit < 0) {
        let text = format!("Invalid request to unpack with offset of {offset} and limit of {len}.");
        return Err(failure(lua, text));
    }
    let Some(mut rest) = usize::try_from(offset).ok().and_then(|offset| data.get(offset..)) else {
        let text = format!("Start offset {offset} greater than input length {len}.");
        return Err(failure(lua, text));
    };
    let (mut found, most) = (Vec::new(), limit.unwrap_or(0));
    while !rest.is_empty() && (most == 0 || (found.len() as i64) < most) {
        match read(lua, &mut rest, 0)? {
            Ok(value) => found.push(value),
            Err(Bad::Missing) => return Err(failure(lua, "Missing bytes in input.")),
            Err(Bad::Format) => return Err(failure(lua, "Bad data format in input.")),
        }
    }
    if limit.is_some() {
        let at = if rest.is_empty() { -1.0 } else { (len - rest.len()) as f64 };
        found.insert(0, Value::Number(at));
    }
    Ok(MultiValue::from_vec(found))
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> std::result::Result<&'a [u8], Bad> {
    let (bytes, behind) = rest.split_at_checked(len).ok_or(Bad::Missing)?;
    *rest = behind;
    Ok(bytes)
}

fn unsigned(rest: &mut &[u8], len: usize) -> std::result::Result<u64, Bad> {
    Ok(take(rest, len)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// What stands next, as far as it is no table.
enum Item<'a> {
    Value(Value),
    Text(&'a [u8]),
    Array(usize),
    Map(usize),
}

fn item<'a>(rest: &mut &'a [u8]) -> std::result::Result<Item<'a>, Bad> {
    let number = |number: f64| Item::Value(Value::Number(number));
    let signed = |rest: &mut &[u8], len: usize| {
        let unused = 64 - 8 * len as u32;
        unsigned(rest, len).map(|value| ((value << unused) as i64 >> unused) as f64)
    };
    let head = take(rest, 1)?[0];
    let width = |base: u8| 1_usize << (head - base);
    Ok(match head {
        0..=0x7f => number(head.into()),
        0x80..=0x8f => Item::Map((head & 15).into()),
        0x90..=0x9f => Item::Array((head & 15).into()),
        0xa0..=0xbf => Item::Text(take(rest, (head & 31).into())?),
        0xc0 => Item::Value(Value::Nil),
        0xc2 | 0xc3 => Item::Value(Value::Boolean(head == 0xc3)),
        0xc4..=0xc6 => {
            let len = unsigned(rest, width(0xc4))? as usize;
            Item::Text(take(rest, len)?)
        }
        0xca => number(f32::from_bits(unsigned(rest, 4)? as u32).into()),
        0xcb => number(f64::from_bits(unsigned(rest, 8)?)),
        0xcc..=0xcf => number(unsigned(rest, width(0xcc))? as f64),
        0xd0..=0xd3 => number(signed(rest, width(0xd0))?),
        0xd9..=0xdb => {
            let len = unsigned(rest, width(0xd9))? as usize;
            Item::Text(take(rest, len)?)
        }
        0xdc | 0xdd => Item::Array(unsigned(rest, 2 * width(0xdc))? as usize),
        0xde | 0xdf => Item::Map(unsigned(rest, 2 * width(0xde))? as usize),
        0xe0.. => number((head as i8).into()),
        _ => return Err(Bad::Format),
    })
}

type Read = std::result::Result<Value, Bad>;

fn read(lua: &Lua, rest: &mut &[u8], level: usize) -> Result<Read> {
    let found = match item(rest) {
        Ok(found) => found,
        Err(bad) => return Ok(Err(bad)),
    };
    if level > READ_NESTING_MAX {
        return Ok(Err(Bad::Format));
    }
    let table = match found {
        Item::Value(value) => return Ok(Ok(value)),
        Item::Text(text) => return Ok(Ok(Value::String(lua.create_string(text)?))),
        Item::Array(len) => {
            let table = lua.create_table()?;
            for place in 1..=len {
                match read(lua, rest, level + 1)? {
                    Ok(value) => table.raw_set(place, value)?,
                    bad => return Ok(bad),
                }
            }
            table
        }
        Item::Map(len) => {
            let table = lua.create_table()?;
            for _ in 0..len {
                let (key, value) = match (read(lua, rest, level + 1)?, read(lua, rest, level + 1)?)
                {
                    (Ok(key), Ok(value)) => (key, value),
                    (Err(bad), _) | (_, Err(bad)) => return Ok(Err(bad)),
                };
                let is_key = match &key {
                    Value::Nil => false,
                    Value::Number(number) => !number.is_nan(),
                    _ => true,
                };
                if !is_key {
                    return Ok(Err(Bad::Format));
                }
                table.raw_set(key, value)?;
            }
            table
        }
    };
    Ok(Ok(Value::Table(table)))
}
