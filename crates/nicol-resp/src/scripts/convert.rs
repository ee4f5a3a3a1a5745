//! Between replies and values of Lua, by the rules of Redis.

use mlua::{Lua, Result, Table, Value};

use crate::commands::number::parse_i64;
use crate::connection::encode::{Protocol, Reply};
use crate::transactions::work::Stop;

/// Tables within tables that are answered.
const NESTING_MAX: usize = 128;

/// What a value that is nested too deep answers.
const TOO_DEEP: &[u8] = b"ERR reached lua stack limit";

/// The first value of `replies`, which is no error of the first level; what follows is left.
pub fn value(lua: &Lua, replies: &mut &[u8]) -> Result<Value> {
    let Some(end) = replies.windows(2).position(|pair| pair == b"\r\n") else {
        return Err(mlua::Error::runtime("a reply without its end"));
    };
    let (line, rest) = (&replies[..end], &replies[end + 2..]);
    *replies = rest;
    let text = |text: &[u8]| lua.create_string(text).map(Value::String);
    let field = |name: &str, value: Value| {
        let table = lua.create_table()?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    };
    let (kind, line) = line.split_first().unwrap_or((&b'_', &[]));
    let number = parse_i64(line);
    match (kind, number) {
        (b':', Some(number)) => Ok(Value::Number(number as f64)),
        (b'+', _) => field("ok", text(line)?),
        (b'-', _) => field("err", text(line)?),
        (b'$' | b'*', Some(..0)) => Ok(Value::Boolean(false)),
        (b'$', Some(len)) => text(bulk(replies, len as usize)),
        (b'=', Some(len)) => {
            let (format, rest) =
                bulk(replies, len as usize).split_at_checked(4).unwrap_or_default();
            let table = lua.create_table()?;
            table.raw_set("format", lua.create_string(&format[..3.min(format.len())])?)?;
            table.raw_set("string", lua.create_string(rest)?)?;
            field("verbatim_string", Value::Table(table))
        }
        (b'*', Some(len)) => {
            let table = lua.create_table()?;
            for place in 1..=len {
                table.raw_set(place, value(lua, replies)?)?;
            }
            Ok(Value::Table(table))
        }
        (b'%', Some(len)) => {
            let table = lua.create_table()?;
            for _ in 0..len {
                table.raw_set(value(lua, replies)?, value(lua, replies)?)?;
            }
            field("map", Value::Table(table))
        }
        (b'~', Some(len)) => {
            let table = lua.create_table()?;
            for _ in 0..len {
                table.raw_set(value(lua, replies)?, true)?;
            }
            field("set", Value::Table(table))
        }
        (b',', _) => {
            let number = crate::commands::float::parse_double(line).unwrap_or(f64::NAN);
            field("double", Value::Number(number))
        }
        (b'#', _) => Ok(Value::Boolean(line == b"t")),
        (b'(', _) => field("big_number", text(line)?),
        _ => Ok(Value::Nil),
    }
}

fn bulk<'a>(replies: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (bulk, rest) = replies.split_at_checked(len).unwrap_or_default();
    *replies = rest.get(2..).unwrap_or_default();
    bulk
}

/// Answers `value`, which a script returned that speaks `version` of the protocol.
///
/// # Errors
/// Lua has no memory for it.
pub fn answer(
    value: &Value,
    reply: &mut Reply<'_>,
    version: Protocol,
) -> std::result::Result<(), Stop> {
    write(value, reply, (version, 0)).map_err(|_| Stop::Overflow)
}

fn write(value: &Value, reply: &mut Reply<'_>, (version, depth): (Protocol, usize)) -> Result<()> {
    if depth > NESTING_MAX {
        reply.error(TOO_DEEP);
        return Ok(());
    }
    match value {
        Value::String(text) => reply.bulk(&text.as_bytes()),
        Value::Integer(number) => reply.integer(*number),
        Value::Number(number) => reply.integer(truncated(*number)),
        Value::Boolean(value) if version == Protocol::Resp3 => reply.boolean(*value),
        Value::Boolean(true) => reply.integer(1),
        Value::Boolean(false) => reply.null(),
        Value::Table(table) => write_table(table, reply, (version, depth))?,
        _ => reply.null(),
    }
    Ok(())
}

/// As C makes an integer of a double.
fn truncated(number: f64) -> i64 {
    match number {
        number if number >= -(2_f64.powi(63)) && number < 2_f64.powi(63) => number as i64,
        _ => i64::MIN,
    }
}

fn write_table(table: &Table, reply: &mut Reply<'_>, how: (Protocol, usize)) -> Result<()> {
    let field = |name: &str| table.raw_get::<Value>(name);
    if let Value::String(text) = field("err")? {
        let text = text.as_bytes();
        reply.error(text.strip_prefix(b"-").unwrap_or(&text));
        return Ok(());
    }
    if let Value::String(text) = field("ok")? {
        reply.line_of(&one_line(&text.as_bytes()));
        return Ok(());
    }
    match field("double")? {
        Value::Number(number) => {
            reply.double(number);
            return Ok(());
        }
        Value::Integer(number) => {
            reply.double(number as f64);
            return Ok(());
        }
        _ => {}
    }
    if let Value::Table(map) = field("map")? {
        return write_map(&map, reply, how);
    }
    if let Value::Table(set) = field("set")? {
        return write_set(&set, reply, how);
    }
    if let Value::String(number) = field("big_number")? {
        reply.big_number(&one_line(&number.as_bytes()));
        return Ok(());
    }
    if let Value::Table(verbatim) = field("verbatim_string")? {
        let (format, text) = (verbatim.raw_get("format")?, verbatim.raw_get("string")?);
        if let (Value::String(format), Value::String(text)) = (format, text) {
            reply.verbatim_as(&format.as_bytes(), &text.as_bytes());
            return Ok(());
        }
    }
    write_array(table, reply, how)
}

fn write_map(
    map: &Table,
    reply: &mut Reply<'_>,
    (version, depth): (Protocol, usize),
) -> Result<()> {
    let pairs = map.pairs::<Value, Value>().collect::<Result<Vec<_>>>()?;
    reply.map(pairs.len());
    for (key, value) in &pairs {
        write(key, reply, (version, depth + 1))?;
        write(value, reply, (version, depth + 1))?;
    }
    Ok(())
}

fn write_set(
    set: &Table,
    reply: &mut Reply<'_>,
    (version, depth): (Protocol, usize),
) -> Result<()> {
    let pairs = set.pairs::<Value, Value>().collect::<Result<Vec<_>>>()?;
    reply.set(pairs.len());
    pairs.iter().try_for_each(|(key, _)| write(key, reply, (version, depth + 1)))
}

/// An array ends before the first nil.
fn write_array(
    table: &Table,
    reply: &mut Reply<'_>,
    (version, depth): (Protocol, usize),
) -> Result<()> {
    let mut elements = Vec::new();
    loop {
        let element: Value = table.raw_get(elements.len() + 1)?;
        if element.is_nil() {
            break;
        }
        elements.push(element);
    }
    // What is answered in place of an element that is too deep ends the recursion.
    reply.array(elements.len());
    elements.iter().try_for_each(|element| write(element, reply, (version, depth + 1)))
}

/// A line cannot hold line breaks.
fn one_line(text: &[u8]) -> Vec<u8> {
    let safe = |byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte };
    text.iter().map(safe).collect()
}
