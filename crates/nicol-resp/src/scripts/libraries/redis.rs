//! `redis`: what a script asks of its host.

use mlua::{Function, Lua, MultiValue, Result, Table, Value};
use sha1::{Digest, Sha1};

use super::super::raise::{self, argument};
use super::super::registry::hex;
use super::super::run::Request;
use crate::config::COMPATIBLE_VERSION;

/// The name under which Lua's registry has the function that answers a script's [`Request`]s.
pub const HOST: &str = "nicol.host";
/// The name under which it has the functions of a library that is loaded.
pub const REGISTERED: &str = "nicol.registered";

/// The table `redis` of scripts, of functions, and of libraries while they are loaded.
pub fn tables(lua: &Lua) -> Result<[Table; 3]> {
    let [script, call, load] = [lua.create_table()?, lua.create_table()?, lua.create_table()?];
    for table in [&script, &call, &load] {
        table.raw_set("log", lua.create_function(log)?)?;
        let levels = ["LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"];
        for (level, name) in levels.into_iter().enumerate() {
            table.raw_set(name, level)?;
        }
        table.raw_set("REDIS_VERSION", COMPATIBLE_VERSION)?;
        table.raw_set("REDIS_VERSION_NUM", version_number())?;
    }
    for table in [&script, &call] {
        let asks: [(&str, Request); 4] = [
            ("call", Request::Call),
            ("pcall", Request::ProtectedCall),
            ("acl_check_cmd", Request::CheckCommand),
            ("setresp", Request::SetVersion),
        ];
        for (name, request) in asks {
            table.raw_set(name, asking(lua, request)?)?;
        }
        table.raw_set("error_reply", lua.create_function(error_reply)?)?;
        table.raw_set("status_reply", lua.create_function(status_reply)?)?;
        table.raw_set("sha1hex", lua.create_function(sha1hex)?)?;
        table.raw_set("set_repl", lua.create_function(set_repl)?)?;
        let flags = [("NONE", NONE), ("AOF", 1), ("SLAVE", 2), ("REPLICA", 2), ("ALL", ALL)];
        for (name, flag) in flags {
            table.raw_set(format!("REPL_{name}"), flag)?;
        }
    }
    // Whole transactions are replicated, as Redis 7 does with the effects of every script.
    let replicate = lua.create_function(|_, _: MultiValue| Ok(true))?;
    script.raw_set("replicate_commands", replicate)?;
    load.raw_set("register_function", lua.create_function(register)?)?;
    Ok([script, call, load])
}

const NONE: i64 = 0;
const ALL: i64 = 3;

fn asking(lua: &Lua, request: Request) -> Result<Function> {
    lua.create_function(move |lua, args: MultiValue| {
        let host: Function = lua.named_registry_value(HOST)?;
        host.call::<Value>((request as i64, args))
    })
}

/// The version in three bytes, as Redis says it.
fn version_number() -> i64 {
    let parts = COMPATIBLE_VERSION.split('.').filter_map(|part| part.parse::<i64>().ok());
    parts.fold(0, |number, part| number << 8 | part)
}

fn log(lua: &Lua, args: MultiValue) -> Result<()> {
    if args.len() < 2 {
        return Err(raise::reply("ERR redis.log() requires two arguments or more."));
    }
    let level = match &args[0] {
        Value::Integer(level) => *level as f64,
        Value::Number(level) => *level,
        _ => return Err(raise::reply("ERR First argument must be a number (log level).")),
    };
    let mut texts = Vec::new();
    for arg in args.iter().skip(1) {
        let text = lua.coerce_string(arg.clone())?;
        texts.extend(text.map(|text| text.to_string_lossy()));
    }
    let text = texts.join(" ");
    match level as i64 {
        0 => tracing::debug!(%text, "a script says"),
        1 | 2 => tracing::info!(%text, "a script says"),
        3 => tracing::warn!(%text, "a script says"),
        _ => return Err(raise::reply("ERR Invalid debug level.")),
    }
    Ok(())
}

/// A table with one field: what `made` of the only argument, a text, is.
fn reply_of(
    lua: &Lua,
    args: &MultiValue,
    field: &str,
    made: fn(&[u8]) -> Vec<u8>,
) -> Result<Table> {
    let table = lua.create_table()?;
    match args.front() {
        Some(Value::String(text)) if args.len() == 1 => {
            table.raw_set(field, lua.create_string(made(&text.as_bytes()))?)?;
        }
        _ => table.raw_set("err", "ERR wrong number or type of arguments")?,
    }
    Ok(table)
}

fn error_reply(lua: &Lua, args: MultiValue) -> Result<Table> {
    reply_of(lua, &args, "err", |text| {
        let text = text.strip_prefix(b"-").unwrap_or(text);
        // A text without a code gets one.
        let code = if text.contains(&b' ') { &b""[..] } else { b"ERR " };
        [code, text.trim_ascii_end()].concat()
    })
}

fn status_reply(lua: &Lua, args: MultiValue) -> Result<Table> {
    reply_of(lua, &args, "ok", <[u8]>::to_vec)
}

fn sha1hex(lua: &Lua, args: MultiValue) -> Result<String> {
    if args.len() != 1 {
        return Err(raise::reply("ERR wrong number of arguments"));
    }
    let text = lua.coerce_string(args[0].clone())?;
    let text = text.map(|text| text.as_bytes().to_vec()).unwrap_or_default();
    Ok(hex(&Sha1::digest(&text).into()))
}

fn set_repl(lua: &Lua, args: MultiValue) -> Result<()> {
    if args.len() != 1 {
        return Err(raise::reply("ERR redis.set_repl() requires one argument."));
    }
    let flags = argument::number(lua, &args, 0, "set_repl")? as i64;
    match flags & !ALL {
        0 => Ok(()),
        _ => Err(raise::reply(
            "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        )),
    }
}

/// The arguments of `redis.register_function` by name, also where they were given by place.
fn given(lua: &Lua, args: &MultiValue) -> Result<Table> {
    Ok(match (args.len(), args.front()) {
        (1, Some(Value::Table(table))) => table.clone(),
        (1, _) => {
            return Err(raise::reply(
                "ERR calling redis.register_function with a single argument is only applicable to \
                 Lua table (representing named arguments).",
            ));
        }
        (2, _) => {
            let table = lua.create_table()?;
            if lua.coerce_string(args[0].clone())?.is_none() {
                return Err(raise::reply(
                    "ERR first argument to redis.register_function must be a string",
                ));
            }
            table.raw_set("function_name", args[0].clone())?;
            if !matches!(args[1], Value::Function(_)) {
                return Err(raise::reply(
                    "ERR second argument to redis.register_function must be a function",
                ));
            }
            table.raw_set("callback", args[1].clone())?;
            table
        }
        _ => {
            let text = "ERR wrong number of arguments to redis.register_function";
            return Err(raise::reply(text));
        }
    })
}

/// Adds a function to the list of those that the library registers: its name, its code, and its
/// flags and description if it has them.
fn register(lua: &Lua, args: MultiValue) -> Result<()> {
    let named = given(lua, &args)?;
    let Value::Table(registered) = lua.named_registry_value(REGISTERED)? else {
        let text = "ERR redis.register_function can only be called on FUNCTION LOAD command";
        return Err(raise::reply(text));
    };
    let function = lua.create_table()?;
    for pair in named.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let Value::String(key) = key else {
            let text = "ERR named argument key given to redis.register_function is not a string";
            return Err(raise::reply(text));
        };
        let refused = match (&*key.as_bytes(), &value) {
            (b"function_name", value) => match lua.coerce_string(value.clone())? {
                Some(_) => None,
                None => Some(
                    "ERR function_name argument given to redis.register_function must be a string",
                ),
            },
            (b"description", value) => match lua.coerce_string(value.clone())? {
                Some(_) => None,
                None => Some(
                    "ERR description argument given to redis.register_function must be a string",
                ),
            },
            (b"callback", Value::Function(_)) | (b"flags", Value::Table(_)) => None,
            (b"callback", _) => {
                Some("ERR callback argument given to redis.register_function must be a function")
            }
            (b"flags", _) => Some(
                "ERR flags argument to redis.register_function must be a table representing \
                 function flags",
            ),
            _ => Some("ERR unknown argument given to redis.register_function"),
        };
        if let Some(text) = refused {
            return Err(raise::reply(text));
        }
        function.raw_set(key, value)?;
    }
    if function.raw_get::<Value>("function_name")?.is_nil() {
        let text = "ERR redis.register_function must get a function name argument";
        return Err(raise::reply(text));
    }
    if function.raw_get::<Value>("callback")?.is_nil() {
        return Err(raise::reply("ERR redis.register_function must get a callback argument"));
    }
    super::super::library::admit(lua, &registered, &function)?;
    registered.raw_push(function)
}
