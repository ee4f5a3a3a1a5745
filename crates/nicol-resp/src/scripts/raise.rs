//! Errors that the host's functions raise in a script.

use mlua::{Error, Lua, MultiValue, Table, Value};

/// The field that tells that an error has been counted, as Redis calls it.
pub const COUNTED: &str = "ignore_error_stats_update";

/// What a function of the host raises. A script sees a text or a table, never this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Raised {
    #[error("{}", String::from_utf8_lossy(.0))]
    Text(Vec<u8>),
    /// A table whose field `err` is this.
    #[error("{}", String::from_utf8_lossy(.0))]
    Reply(Vec<u8>),
    /// The same with the error of a command.
    #[error("{}", String::from_utf8_lossy(.0))]
    OfCommand(Vec<u8>),
}

/// Raises `text` behind the place in the script that called the running function.
pub fn failure(lua: &Lua, text: impl AsRef<[u8]>) -> Error {
    let place = lua.inspect_stack(1, |frame| {
        let line = frame.current_line()?;
        Some(format!("{}:{line}: ", frame.source().short_src.as_deref()?))
    });
    let mut located = place.flatten().unwrap_or_default().into_bytes();
    located.extend_from_slice(text.as_ref());
    Error::external(Raised::Text(located))
}

/// Raises a table whose field `err` is `text`.
pub fn reply(text: impl Into<Vec<u8>>) -> Error {
    Error::external(Raised::Reply(text.into()))
}

/// Raises the error of a command.
pub fn of_command(text: Vec<u8>) -> Error {
    Error::external(Raised::OfCommand(text))
}

/// The error of a command as a script sees it: it has been counted.
pub fn table_of_command(lua: &Lua, text: &[u8]) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(text)?)?;
    table.raw_set(COUNTED, true)?;
    Ok(table)
}

/// What a script sees of `found`, a value that was raised.
pub fn plain(lua: &Lua, found: Value) -> mlua::Result<Value> {
    let Value::Error(error) = found else { return Ok(found) };
    match raised(&error) {
        Some(Raised::Text(text)) => Ok(Value::String(lua.create_string(text)?)),
        Some(Raised::Reply(text)) => {
            let table = lua.create_table()?;
            table.raw_set("err", lua.create_string(text)?)?;
            Ok(Value::Table(table))
        }
        Some(Raised::OfCommand(text)) => table_of_command(lua, text).map(Value::Table),
        None => Ok(Value::String(lua.create_string(in_words(&error))?)),
    }
}

fn raised(error: &Error) -> Option<&Raised> {
    match error {
        Error::CallbackError { cause, .. } => raised(cause),
        Error::ExternalError(inner) => inner.downcast_ref(),
        _ => None,
    }
}

/// An error of Lua itself in Lua's words.
pub fn in_words(error: &Error) -> String {
    match error {
        Error::CallbackError { cause, .. } => in_words(cause),
        Error::RuntimeError(text) | Error::SyntaxError { message: text, .. } => text.clone(),
        Error::MemoryError(_) => "not enough memory".to_owned(),
        other => other.to_string(),
    }
}

/// Arguments of the host's functions, checked as Lua's own library does.
pub mod argument {
    use super::{Error, Lua, MultiValue, Value, failure};

    /// The error of argument `place`, counted from 0, of `function`.
    pub fn wrong(lua: &Lua, place: usize, function: &str, why: &str) -> Error {
        failure(lua, format!("bad argument #{} to '{function}' ({why})", place + 1))
    }

    fn expected(lua: &Lua, args: &MultiValue, place: usize, of: (&str, &str)) -> Error {
        let (what, function) = of;
        let got = args.get(place).map_or("no value", type_name);
        wrong(lua, place, function, &format!("{what} expected, got {got}"))
    }

    /// The name of a value's type as Lua says it.
    pub fn type_name(value: &Value) -> &'static str {
        match value {
            Value::LightUserData(_) => "userdata",
            Value::Integer(_) | Value::Number(_) => "number",
            other => other.type_name(),
        }
    }

    /// A number, or a text that is one.
    pub fn number(lua: &Lua, args: &MultiValue, place: usize, function: &str) -> mlua::Result<f64> {
        let value = args.get(place).cloned().unwrap_or(Value::Nil);
        let number = match value {
            Value::Nil => None,
            value => lua.coerce_number(value)?,
        };
        number.ok_or_else(|| expected(lua, args, place, ("number", function)))
    }

    /// A text, or a number as a text.
    pub fn text(
        lua: &Lua,
        args: &MultiValue,
        place: usize,
        function: &str,
    ) -> mlua::Result<Vec<u8>> {
        let value = args.get(place).cloned().unwrap_or(Value::Nil);
        let text = match value {
            Value::Nil => None,
            value => lua.coerce_string(value)?,
        };
        match text {
            Some(text) => Ok(text.as_bytes().to_vec()),
            None => Err(expected(lua, args, place, ("string", function))),
        }
    }
}
