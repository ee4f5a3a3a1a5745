//! `cjson`: values in JSON, as lua-cjson 2.1 writes and reads them.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Lua, MultiValue, Result, Table, Value};

use super::super::raise::argument::{self, text, wrong};
use super::super::raise::failure;
use super::json_text::{Token, Tokens};
use crate::commands::float::format_digits;

/// What numbers that JSON does not have become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OddNumbers {
    Refused,
    Written,
    Null,
}

/// How values are written and read.
#[derive(Clone, Copy, Debug)]
struct Options {
    converts_sparse: bool,
    sparse_ratio: i64,
    sparse_safe: i64,
    write_depth: i64,
    read_depth: i64,
    digits: usize,
    keeps_buffer: bool,
    writes: OddNumbers,
    reads_odd: bool,
}

const DEFAULTS: Options = Options {
    converts_sparse: false,
    sparse_ratio: 2,
    sparse_safe: 10,
    write_depth: 1_000,
    read_depth: 1_000,
    digits: 14,
    keeps_buffer: true,
    writes: OddNumbers::Refused,
    reads_odd: true,
};

/// The options of a machine, which each run of a script begins anew.
#[derive(Clone, Debug)]
pub struct Json(Rc<Cell<Options>>);

impl Json {
    /// With the options of lua-cjson.
    pub fn new() -> Self {
        Self(Rc::new(Cell::new(DEFAULTS)))
    }

    /// Forgets what a script has chosen.
    pub fn reset(&self) {
        self.0.set(DEFAULTS);
    }

    /// The table of the library.
    pub fn library(&self, lua: &Lua) -> Result<Table> {
        let table = lua.create_table()?;
        table.raw_set("_NAME", "cjson")?;
        table.raw_set("_VERSION", "2.1.0")?;
        table.raw_set("null", Value::NULL)?;
        let new = |lua: &Lua, _: MultiValue| Self::new().library(lua);
        table.raw_set("new", lua.create_function(new)?)?;
        let options = self.0.clone();
        let encode = move |lua: &Lua, args: MultiValue| {
            let [value] = args.as_slices().0 else {
                return Err(wrong(lua, 0, "encode", "expected 1 argument"));
            };
            let mut out = Vec::new();
            write(lua, &mut out, value, (&options.get(), 0))?;
            lua.create_string(&out)
        };
        table.raw_set("encode", lua.create_function(encode)?)?;
        let options = self.0.clone();
        let decode = move |lua: &Lua, args: MultiValue| {
            if args.len() != 1 {
                return Err(wrong(lua, 0, "decode", "expected 1 argument"));
            }
            let json = text(lua, &args, 0, "decode")?;
            read(lua, &json, &options.get())
        };
        table.raw_set("decode", lua.create_function(decode)?)?;
        self.numbers(lua, &table)?;
        self.switches(lua, &table)?;
        Ok(table)
    }

    /// The functions that choose a number.
    fn numbers(&self, lua: &Lua, table: &Table) -> Result<()> {
        type Field = fn(&mut Options) -> &mut i64;
        let fields: [(&str, Field); 2] = [
            ("encode_max_depth", |options| &mut options.write_depth),
            ("decode_max_depth", |options| &mut options.read_depth),
        ];
        for (name, field) in fields {
            let cell = self.0.clone();
            let set = move |lua: &Lua, args: MultiValue| {
                let mut options = cell.get();
                choose(lua, &args, (0, name), (1, i32::MAX.into()), field(&mut options))?;
                cell.set(options);
                Ok(*field(&mut options))
            };
            table.raw_set(name, lua.create_function(set)?)?;
        }
        let cell = self.0.clone();
        let set = move |lua: &Lua, args: MultiValue| {
            let mut options = cell.get();
            let mut digits = options.digits as i64;
            choose(lua, &args, (0, "encode_number_precision"), (1, 14), &mut digits)?;
            options.digits = digits as usize;
            cell.set(options);
            Ok(digits)
        };
        table.raw_set("encode_number_precision", lua.create_function(set)?)?;
        let cell = self.0.clone();
        let set = move |lua: &Lua, args: MultiValue| {
            const NAME: &str = "encode_sparse_array";
            let mut options = cell.get();
            options.converts_sparse = switch(lua, &args, NAME, options.converts_sparse)?;
            choose(lua, &args, (1, NAME), (0, i32::MAX.into()), &mut options.sparse_ratio)?;
            choose(lua, &args, (2, NAME), (0, i32::MAX.into()), &mut options.sparse_safe)?;
            cell.set(options);
            Ok((options.converts_sparse, options.sparse_ratio, options.sparse_safe))
        };
        table.raw_set("encode_sparse_array", lua.create_function(set)?)
    }

    /// The functions that turn something on or off.
    fn switches(&self, lua: &Lua, table: &Table) -> Result<()> {
        type Field = fn(&mut Options) -> &mut bool;
        let fields: [(&str, Field); 2] = [
            ("encode_keep_buffer", |options| &mut options.keeps_buffer),
            ("decode_invalid_numbers", |options| &mut options.reads_odd),
        ];
        for (name, field) in fields {
            let cell = self.0.clone();
            let set = move |lua: &Lua, args: MultiValue| {
                let mut options = cell.get();
                let chosen = switch(lua, &args, name, *field(&mut options))?;
                *field(&mut options) = chosen;
                cell.set(options);
                Ok(chosen)
            };
            table.raw_set(name, lua.create_function(set)?)?;
        }
        let cell = self.0.clone();
        let set = move |lua: &Lua, args: MultiValue| {
            let mut options = cell.get();
            let is_null = match args.front() {
                Some(Value::String(text)) => *text.as_bytes() == *b"null",
                _ => false,
            };
            if is_null {
                options.writes = OddNumbers::Null;
            } else if args.front().is_some_and(|value| !value.is_nil()) {
                let written = switch(lua, &args, "encode_invalid_numbers", false)?;
                options.writes = if written { OddNumbers::Written } else { OddNumbers::Refused };
            }
            cell.set(options);
            match options.writes {
                OddNumbers::Null => Ok(Value::String(lua.create_string("null")?)),
                chosen => Ok(Value::Boolean(chosen == OddNumbers::Written)),
            }
        };
        table.raw_set("encode_invalid_numbers", lua.create_function(set)?)
    }
}

/// Sets `field` to the argument at `place`, if there is one.
fn choose(
    lua: &Lua,
    args: &MultiValue,
    (place, function): (usize, &str),
    (min, max): (i64, i64),
    field: &mut i64,
) -> Result<()> {
    if args.get(place).is_none_or(Value::is_nil) {
        return Ok(());
    }
    let number = argument::number(lua, args, place, function)?;
    if number < min as f64 || number > max as f64 {
        let why = format!("expected integer between {min} and {max}");
        return Err(wrong(lua, place, function, &why));
    }
    *field = number as i64;
    Ok(())
}

/// What the first argument turns on or off; without one it stays as it `was`.
fn switch(lua: &Lua, args: &MultiValue, function: &str, was: bool) -> Result<bool> {
    let invalid = |text: &str| wrong(lua, 0, function, &format!("invalid option '{text}'"));
    match args.front() {
        None | Some(Value::Nil) => Ok(was),
        Some(Value::Boolean(chosen)) => Ok(*chosen),
        Some(Value::String(text)) => match &*text.as_bytes() {
            b"on" => Ok(true),
            b"off" => Ok(false),
            _ => Err(invalid(&text.to_string_lossy())),
        },
        Some(other) => Err(invalid(argument::type_name(other))),
    }
}

fn write(
    lua: &Lua,
    out: &mut Vec<u8>,
    value: &Value,
    (options, depth): (&Options, i64),
) -> Result<()> {
    let unable = |what: &str, why: &str| failure(lua, format!("Cannot serialise {what}: {why}"));
    match value {
        Value::String(text) => write_text(out, &text.as_bytes()),
        Value::Integer(number) => write_number(lua, out, *number as f64, options)?,
        Value::Number(number) => write_number(lua, out, *number, options)?,
        Value::Boolean(true) => out.extend_from_slice(b"true"),
        Value::Boolean(false) => out.extend_from_slice(b"false"),
        Value::Nil => out.extend_from_slice(b"null"),
        value if *value == Value::NULL => out.extend_from_slice(b"null"),
        Value::Table(table) => {
            let depth = depth + 1;
            if depth > options.write_depth {
                let text = format!("Cannot serialise, excessive nesting ({depth})");
                return Err(failure(lua, text));
            }
            match array_len(table, options)? {
                Some(len) if len > 0 => write_array(lua, out, (table, len), (options, depth))?,
                Some(_) => write_object(lua, out, table, (options, depth))?,
                None if options.converts_sparse => {
                    write_object(lua, out, table, (options, depth))?;
                }
                None => return Err(unable("table", "excessively sparse array")),
            }
        }
        other => return Err(unable(argument::type_name(other), "type not supported")),
    }
    Ok(())
}

/// The highest place of a table whose keys are places, or 0. `None`: too many places are empty.
fn array_len(table: &Table, options: &Options) -> Result<Option<i64>> {
    let (mut max, mut items) = (0.0_f64, 0_i64);
    for pair in table.pairs::<Value, Value>() {
        let number = match pair?.0 {
            Value::Integer(number) => number as f64,
            Value::Number(number) => number,
            _ => return Ok(Some(0)),
        };
        if number < 1.0 || number.fract() != 0.0 {
            return Ok(Some(0));
        }
        max = max.max(number);
        items += 1;
    }
    let Options { sparse_ratio: ratio, sparse_safe: safe, .. } = *options;
    let is_sparse = ratio > 0 && max > (items * ratio) as f64 && max > safe as f64;
    Ok((!is_sparse).then_some(max as i64))
}

fn write_array(
    lua: &Lua,
    out: &mut Vec<u8>,
    (table, len): (&Table, i64),
    how: (&Options, i64),
) -> Result<()> {
    out.push(b'[');
    for place in 1..=len {
        if place > 1 {
            out.push(b',');
        }
        write(lua, out, &table.raw_get(place)?, how)?;
    }
    out.push(b']');
    Ok(())
}

fn write_object(lua: &Lua, out: &mut Vec<u8>, table: &Table, how: (&Options, i64)) -> Result<()> {
    out.push(b'{');
    let mut first = true;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        match &key {
            Value::String(text) => write_text(out, &text.as_bytes()),
            Value::Integer(_) | Value::Number(_) => {
                out.push(b'"');
                write(lua, out, &key, how)?;
                out.push(b'"');
            }
            other => {
                let name = argument::type_name(other);
                let why = "table key must be a number or string";
                return Err(failure(lua, format!("Cannot serialise {name}: {why}")));
            }
        }
        out.push(b':');
        write(lua, out, &value, how)?;
    }
    out.push(b'}');
    Ok(())
}

fn write_number(lua: &Lua, out: &mut Vec<u8>, number: f64, options: &Options) -> Result<()> {
    if number.is_finite() {
        out.extend_from_slice(format_digits(number, options.digits).as_bytes());
        return Ok(());
    }
    out.extend_from_slice(match options.writes {
        OddNumbers::Refused => {
            return Err(failure(lua, "Cannot serialise number: must not be NaN or Inf"));
        }
        OddNumbers::Null => b"null",
        OddNumbers::Written if number.is_nan() => b"NaN",
        OddNumbers::Written if number > 0.0 => b"Infinity",
        OddNumbers::Written => b"-Infinity",
    });
    Ok(())
}

fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' | b'\\' | b'/' => out.extend([b'\\', *byte]),
            8 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            12 => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0..32 | 127 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}

fn read(lua: &Lua, json: &[u8], options: &Options) -> Result<Value> {
    if json.len() >= 2 && (json[0] == 0 || json[1] == 0) {
        return Err(failure(lua, "JSON parser does not support UTF-16 or UTF-32"));
    }
    let tokens = Tokens::new(json, options.reads_odd);
    let mut reader = Reader { lua, tokens, depth: 0, most: options.read_depth };
    let first = reader.tokens.next();
    let value = reader.value(first)?;
    match reader.tokens.next() {
        (Token::End, _) => Ok(value),
        other => Err(reader.unexpected("the end", &other)),
    }
}

struct Reader<'a> {
    lua: &'a Lua,
    tokens: Tokens<'a>,
    depth: i64,
    most: i64,
}

impl Reader<'_> {
    fn unexpected(&self, wanted: &str, (found, place): &(Token, usize)) -> mlua::Error {
        let found = found.name();
        failure(self.lua, format!("Expected {wanted} but found {found} at character {place}"))
    }

    fn value(&mut self, token: (Token, usize)) -> Result<Value> {
        Ok(match token {
            (Token::Text(text), _) => Value::String(self.lua.create_string(&text)?),
            (Token::Number(number), _) => Value::Number(number),
            (Token::Boolean(value), _) => Value::Boolean(value),
            (Token::Null, _) => Value::NULL,
            (Token::ObjectBegin, place) => Value::Table(self.object(place)?),
            (Token::ArrayBegin, place) => Value::Table(self.array(place)?),
            other => return Err(self.unexpected("value", &other)),
        })
    }

    fn descend(&mut self, place: usize) -> Result<()> {
        self.depth += 1;
        if self.depth > self.most {
            let depth = self.depth;
            let text = "Found too many nested data structures";
            return Err(failure(self.lua, format!("{text} ({depth}) at character {place}")));
        }
        Ok(())
    }

    fn object(&mut self, place: usize) -> Result<Table> {
        self.descend(place)?;
        let table = self.lua.create_table()?;
        let mut token = self.tokens.next();
        while token.0 != Token::ObjectEnd {
            let (Token::Text(key), _) = &token else {
                return Err(self.unexpected("object key string", &token));
            };
            let key = self.lua.create_string(key)?;
            let colon = self.tokens.next();
            if colon.0 != Token::Colon {
                return Err(self.unexpected("colon", &colon));
            }
            let first = self.tokens.next();
            table.raw_set(key, self.value(first)?)?;
            match self.tokens.next() {
                (Token::ObjectEnd, _) => break,
                (Token::Comma, _) => {}
                other => return Err(self.unexpected("comma or object end", &other)),
            }
            token = self.tokens.next();
            if token.0 == Token::ObjectEnd {
                return Err(self.unexpected("object key string", &token));
            }
        }
        self.depth -= 1;
        Ok(table)
    }

    fn array(&mut self, place: usize) -> Result<Table> {
        self.descend(place)?;
        let table = self.lua.create_table()?;
        let mut token = self.tokens.next();
        let mut len = 0;
        if token.0 != Token::ArrayEnd {
            loop {
                len += 1;
                table.raw_set(len, self.value(token)?)?;
                match self.tokens.next() {
                    (Token::ArrayEnd, _) => break,
                    (Token::Comma, _) => {}
                    other => return Err(self.unexpected("comma or array end", &other)),
                }
                token = self.tokens.next();
            }
        }
        self.depth -= 1;
        Ok(table)
    }
}
