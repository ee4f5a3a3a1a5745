//! `struct`: numbers and texts in the layout of C.

use mlua::{Lua, MultiValue, Result, Table, Value};

use super::super::raise::argument::{number, text, wrong};
use super::super::raise::failure;

/// The largest integer.
const INTEGER_MAX: usize = 32;
/// The alignment of `!` without a number.
const ALIGNMENT: usize = 8;

/// The table of the library.
pub fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", lua.create_function(pack)?)?;
    table.raw_set("unpack", lua.create_function(unpack)?)?;
    table.raw_set("size", lua.create_function(size)?)?;
    Ok(table)
}

/// A format that is read option by option.
struct Format<'f> {
    rest: &'f [u8],
    function: &'static str,
    little: bool,
    align: usize,
}

/// An option with its size.
struct Field {
    option: u8,
    size: usize,
}

impl<'f> Format<'f> {
    fn new(rest: &'f [u8], function: &'static str) -> Self {
        Self { rest, function, little: true, align: 1 }
    }

    /// The number that follows, or `otherwise`.
    fn count(&mut self, lua: &Lua, otherwise: usize) -> Result<usize> {
        if !self.rest.first().is_some_and(u8::is_ascii_digit) {
            return Ok(otherwise);
        }
        let mut count = 0_usize;
        while let [digit @ b'0'..=b'9', rest @ ..] = self.rest {
            count = count * 10 + usize::from(digit - b'0');
            if count > i32::MAX as usize {
                return Err(failure(lua, "integral size overflow"));
            }
            self.rest = rest;
        }
        Ok(count)
    }

    /// The next option that stands for data.
    fn next(&mut self, lua: &Lua) -> Result<Option<Field>> {
        while let [option, rest @ ..] = self.rest {
            self.rest = rest;
            let size = match option {
                b'B' | b'b' | b'x' => 1,
                b'H' | b'h' => 2,
                b'L' | b'l' | b'T' | b'd' => 8,
                b'f' => 4,
                b'c' => self.count(lua, 1)?,
                b'i' | b'I' => {
                    let size = self.count(lua, 4)?;
                    if size > INTEGER_MAX {
                        let text =
                            format!("integral size {size} is larger than limit of {INTEGER_MAX}");
                        return Err(failure(lua, text));
                    }
                    size
                }
                b' ' => continue,
                b'<' | b'>' => {
                    self.little = *option == b'<';
                    continue;
                }
                b'!' => {
                    self.align = self.count(lua, ALIGNMENT)?;
                    if !self.align.is_power_of_two() {
                        let text = format!("alignment {} is not a power of 2", self.align);
                        return Err(failure(lua, text));
                    }
                    continue;
                }
                _ => 0,
            };
            return Ok(Some(Field { option: *option, size }));
        }
        Ok(None)
    }

    /// Bytes between position `at` and the field.
    fn padding(&self, at: usize, field: &Field) -> usize {
        let size = field.size.min(self.align);
        match field.option {
            b'c' => 0,
            _ if size > 1 => size.wrapping_sub(at) & (size - 1),
            _ => 0,
        }
    }

    fn unknown(&self, lua: &Lua, option: u8) -> mlua::Error {
        let why = format!("invalid format option '{}'", option as char);
        wrong(lua, 0, self.function, &why)
    }
}

fn pack(lua: &Lua, mut args: MultiValue) -> Result<mlua::LuaString> {
    // An argument that is missing is nil, as errors say it.
    args.push_back(Value::Nil);
    let format = text(lua, &args, 0, "pack")?;
    let mut format = Format::new(&format, "pack");
    let (mut out, mut place) = (Vec::new(), 1);
    while let Some(field) = format.next(lua)? {
        out.resize(out.len() + format.padding(out.len(), &field), 0);
        match field.option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                put(&mut out, integer(number(lua, &args, place, "pack")?), &field, format.little);
                place += 1;
            }
            b'x' => out.push(0),
            b'f' => {
                let bytes = (number(lua, &args, place, "pack")? as f32).to_le_bytes();
                extend(&mut out, &bytes, format.little);
                place += 1;
            }
            b'd' => {
                let bytes = number(lua, &args, place, "pack")?.to_le_bytes();
                extend(&mut out, &bytes, format.little);
                place += 1;
            }
            b's' | b'c' => {
                let bytes = text(lua, &args, place, "pack")?;
                place += 1;
                let size = if field.size == 0 { bytes.len() } else { field.size };
                if bytes.len() < size {
                    return Err(wrong(lua, place, "pack", "string too short"));
                }
                out.extend_from_slice(&bytes[..size]);
                if field.option == b's' {
                    out.push(0);
                }
            }
            option => return Err(format.unknown(lua, option)),
        }
    }
    lua.create_string(&out)
}

/// A number as C makes an integer of it.
fn integer(number: f64) -> u64 {
    if number < 0.0 { number as i64 as u64 } else { number as u64 }
}

fn extend(out: &mut Vec<u8>, little_endian: &[u8], little: bool) {
    match little {
        true => out.extend_from_slice(little_endian),
        false => out.extend(little_endian.iter().rev()),
    }
}

fn put(out: &mut Vec<u8>, value: u64, field: &Field, little: bool) {
    let mut bytes = [0; INTEGER_MAX];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    extend(out, &bytes[..field.size], little);
}

fn get(bytes: &[u8], field: &Field, little: bool) -> f64 {
    let mut value = 0_u64;
    let push = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    match little {
        true => value = bytes.iter().rev().fold(value, push),
        false => value = bytes.iter().fold(value, push),
    }
    if field.option.is_ascii_uppercase() {
        return value as f64;
    }
    let unused = 64_usize.saturating_sub(8 * field.size);
    // Nothing is left of an integer without bytes.
    if unused == 64 { 0.0 } else { ((value << unused) as i64 >> unused) as f64 }
}

fn unpack(lua: &Lua, args: MultiValue) -> Result<MultiValue> {
    let (format, data) = (text(lua, &args, 0, "unpack")?, text(lua, &args, 1, "unpack")?);
    let start = match args.get(2) {
        None | Some(Value::Nil) => 1.0,
        Some(_) => number(lua, &args, 2, "unpack")?,
    };
    if start < 1.0 {
        return Err(wrong(lua, 2, "unpack", "offset must be 1 or greater"));
    }
    let (mut at, mut found) = (start as usize - 1, Vec::<Value>::new());
    let mut format = Format::new(&format, "unpack");
    while let Some(mut field) = format.next(lua)? {
        at = at.saturating_add(format.padding(at, &field));
        let short = || wrong(lua, 1, "unpack", "data string too short");
        let rest = data.get(at..).filter(|rest| rest.len() >= field.size).ok_or_else(short)?;
        match field.option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                found.push(Value::Number(get(&rest[..field.size], &field, format.little)));
            }
            b'x' => {}
            b'f' => {
                let bytes = ordered::<4>(rest, format.little);
                found.push(Value::Number(f32::from_le_bytes(bytes).into()));
            }
            b'd' => {
                let bytes = ordered::<8>(rest, format.little);
                found.push(Value::Number(f64::from_le_bytes(bytes)));
            }
            b'c' => {
                if field.size == 0 {
                    let size = found.pop().map(|size| lua.coerce_number(size)).transpose()?;
                    let none = || failure(lua, "format 'c0' needs a previous size");
                    field.size = size.flatten().ok_or_else(none)?.max(0.0) as usize;
                }
                let bytes = rest.get(..field.size).ok_or_else(short)?;
                found.push(Value::String(lua.create_string(bytes)?));
            }
            b's' => {
                let end = rest.iter().position(|byte| *byte == 0);
                let end = end.ok_or_else(|| failure(lua, "unfinished string in data"))?;
                found.push(Value::String(lua.create_string(&rest[..end])?));
                field.size = end + 1;
            }
            option => return Err(format.unknown(lua, option)),
        }
        at += field.size;
    }
    found.push(Value::Number((at + 1) as f64));
    Ok(MultiValue::from_vec(found))
}

/// The first bytes, those of a little-endian number.
fn ordered<const N: usize>(bytes: &[u8], little: bool) -> [u8; N] {
    let mut ordered = [0; N];
    ordered.copy_from_slice(&bytes[..N]);
    if !little {
        ordered.reverse();
    }
    ordered
}

fn size(lua: &Lua, args: MultiValue) -> Result<f64> {
    let format = text(lua, &args, 0, "size")?;
    let (mut format, mut at) = (Format::new(&format, "size"), 0_usize);
    while let Some(field) = format.next(lua)? {
        at += format.padding(at, &field);
        match (field.option, field.size) {
            (b's', _) => return Err(wrong(lua, 0, "size", "option 's' has no fixed size")),
            (b'c', 0) => return Err(wrong(lua, 0, "size", "option 'c0' has no fixed size")),
            (_, size) => at += size,
        }
    }
    Ok(at as f64)
}
