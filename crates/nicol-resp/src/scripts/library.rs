//! Libraries of functions as a machine knows them, and what they may register.

use mlua::{Lua, Table, Value};

use super::flags::Flags;
use super::{raise, shebang};

/// A function that a library registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    pub name: String,
    pub description: Option<Vec<u8>>,
    pub flags: Flags,
}

/// A library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    pub name: String,
    pub code: Vec<u8>,
    pub functions: Vec<Declared>,
}

/// Checks a function that a library registers, against those that it has registered before.
///
/// # Errors
/// What is wrong, for the library to raise.
pub fn admit(lua: &Lua, registered: &Table, function: &Table) -> mlua::Result<()> {
    if let Value::Table(flags) = function.raw_get("flags")? {
        for flag in flags.sequence_values::<Value>() {
            let flag = lua.coerce_string(flag?)?;
            if !flag.is_some_and(|flag| Flags::default().add(&flag.as_bytes())) {
                return Err(raise::reply("ERR unknown flag given"));
            }
        }
    }
    let name = name_of(lua, function)?;
    if shebang::checked_name(&name).is_none() {
        return Err(raise::reply(shebang::BAD_NAME));
    }
    for other in registered.sequence_values::<Table>() {
        if name_of(lua, &other?)?.eq_ignore_ascii_case(&name) {
            return Err(raise::reply("ERR Function already exists in the library"));
        }
    }
    Ok(())
}

/// The name that a function is registered by.
pub fn name_of(lua: &Lua, function: &Table) -> mlua::Result<Vec<u8>> {
    let name = lua.coerce_string(function.raw_get("function_name")?)?;
    Ok(name.map(|name| name.as_bytes().to_vec()).unwrap_or_default())
}
