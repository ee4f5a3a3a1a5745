//! A machine that runs scripts: Lua 5.1 with the libraries that Redis gives to scripts.
//!
//! Each thread has one, made at its first script. Scripts leave nothing behind in it: the globals
//! are protected, a library of functions is run anew for each call, and what else a script can
//! change begins anew with each run. So a run depends on nothing but its transaction, wherever it
//! is run, and may be run again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

use mlua::chunk::ChunkMode;
use mlua::{
    Function, HookTriggers, Lua, LuaOptions, MultiValue, Result, StdLib, Table, Value, VmState,
};
use sha1::{Digest, Sha1};

use super::{convert, shebang};

use super::libraries::cjson::Json;
use super::libraries::redis::{HOST, REGISTERED};
use super::libraries::{bits, cmsgpack, packed, redis};
use super::library::{Library, name_of};
use super::meter::{BYTES_PER_INSTRUCTION, INSTRUCTIONS_MAX, MEMORY_MAX, Meter, STEP, TIME_MAX};
use super::raise::{self, argument};
use super::random::Random;
use super::registry::{Sha, hex};
use super::run::Run;
use crate::connection::encode::Reply;
use crate::transactions::work::Stop;

const PRELUDE: &str = include_str!("prelude.lua");

/// Compiled texts that a machine keeps.
const COMPILED_MAX: usize = 512;
/// Bytes of their texts.
const COMPILED_BYTES_MAX: usize = 8 << 20;
/// Bytes of a machine behind which garbage is collected before a script runs.
const GARBAGE_MAX: usize = 32 << 20;

/// What `redis` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Script,
    Function,
    Load,
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub enum Task<'a> {
    Script {
        sha: Sha,
        text: &'a [u8],
    },
    /// A function of a library, by its name.
    Function {
        name: &'a str,
        library: &'a [u8],
    },
}

/// A machine.
pub struct Machine {
    lua: Lua,
    meter: Rc<Meter>,
    random: Random,
    json: Json,
    /// The table behind the globals.
    base: Table,
    /// Runs a function with two arguments: returns whether it ended well, and what it returned or
    /// raised.
    runner: Function,
    /// What `redis` is to each stage.
    stages: Table,
    /// Tables that must stay empty.
    proxies: Vec<Table>,
    compiled: BTreeMap<Sha, Function>,
    compiled_bytes: usize,
    /// The libraries that a record holds, and the record.
    libraries: Option<(Vec<u8>, Rc<Vec<Library>>)>,
}

thread_local! {
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

/// Does something with the thread's machine. Errors: there is no memory for one.
pub fn with<R>(work: impl FnOnce(&mut Machine) -> R) -> Result<R> {
    MACHINE.with_borrow_mut(|place| {
        if place.is_none() {
            *place = Some(Machine::new()?);
        }
        match place {
            Some(machine) => Ok(work(machine)),
            None => Err(mlua::Error::runtime("no machine")),
        }
    })
}

/// Whether `text` is a script.
///
/// # Errors
/// What is wrong with it, as the command answers it.
pub fn check(text: &[u8]) -> std::result::Result<(), Vec<u8>> {
    let sha = Sha1::digest(text).into();
    let compiled = with(|machine| machine.script(sha, text).map(drop)).and_then(|done| done);
    compiled.map_err(|error| compile_error(&error))
}

fn compile_error(error: &mlua::Error) -> Vec<u8> {
    let text = raise::in_words(error);
    format!("ERR Error compiling script (new function): {text}").into_bytes()
}

impl Machine {
    fn new() -> Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let (meter, random, json) = (Rc::new(Meter::default()), Random::default(), Json::new());
        let host = host(&lua, &meter, &random, &json)?;
        let prelude = lua.load(PRELUDE).set_name("=host").into_function()?;
        let (base, globals, runner, stages, proxies): (Table, Table, Function, Table, Vec<Table>) =
            prelude.call(host)?;
        lua.set_globals(globals)?;
        let hooked = meter.clone();
        let look = move |_: &Lua, _: &mlua::debug::Debug| match hooked.charge(STEP.into()) {
            true => Ok(VmState::Continue),
            false => Err(mlua::Error::runtime("stopped")),
        };
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(STEP), look)?;
        Ok(Self {
            lua,
            meter,
            random,
            json,
            base,
            runner,
            stages,
            proxies,
            compiled: BTreeMap::new(),
            compiled_bytes: 0,
            libraries: None,
        })
    }

    /// Its Lua.
    pub fn lua(&self) -> &Lua {
        &self.lua
    }

    /// The libraries in `record`, if these are known.
    pub fn known_libraries(&self, record: &[u8]) -> Option<Rc<Vec<Library>>> {
        let known = self.libraries.as_ref().filter(|(known, _)| known == record);
        known.map(|(_, libraries)| libraries.clone())
    }

    /// Keeps the libraries in `record`.
    pub fn know_libraries(&mut self, record: &[u8], libraries: Rc<Vec<Library>>) {
        self.libraries = Some((record.to_vec(), libraries));
    }

    /// Gives the run a whole budget.
    pub fn refill(&self) {
        self.meter.begin(INSTRUCTIONS_MAX, Some(Instant::now() + TIME_MAX));
    }

    /// Its meter.
    pub fn meter(&self) -> &Rc<Meter> {
        &self.meter
    }

    /// The function of a script.
    fn script(&mut self, sha: Sha, text: &[u8]) -> Result<Function> {
        // Line numbers count from the line that says what it is.
        let start = match text.starts_with(b"#!") {
            true => text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len()),
            false => 0,
        };
        self.compile(sha, &text[start..], "@user_script")
    }

    /// The function of a text that is known by `sha`.
    pub fn compile(&mut self, sha: Sha, text: &[u8], name: &str) -> Result<Function> {
        if let Some(function) = self.compiled.get(&sha) {
            return Ok(function.clone());
        }
        self.meter.begin(u64::MAX, None);
        self.lua.set_memory_limit(self.lua.used_memory() + MEMORY_MAX)?;
        let chunk = self.lua.load(text).set_name(name).set_mode(ChunkMode::Text);
        let function = chunk.into_function()?;
        let bytes = self.compiled_bytes + text.len();
        if self.compiled.len() >= COMPILED_MAX || bytes > COMPILED_BYTES_MAX {
            self.compiled.clear();
            self.compiled_bytes = 0;
        }
        self.compiled_bytes += text.len();
        self.compiled.insert(sha, function.clone());
        Ok(function)
    }

    /// Begins a run with so many instructions left.
    pub fn begin(&mut self, (left, until): (u64, Instant), seed: u64) -> Result<()> {
        if self.lua.used_memory() > GARBAGE_MAX {
            self.lua.gc_collect()?;
        }
        self.meter.begin(left, Some(until));
        self.random.seed(seed);
        self.json.reset();
        self.lua.set_memory_limit(self.lua.used_memory() + MEMORY_MAX).map(drop)
    }

    /// Sets what `redis` is from now on.
    fn enter(&self, stage: Stage) -> Result<()> {
        let name = match stage {
            Stage::Script => "script",
            Stage::Function => "call",
            Stage::Load => "load",
        };
        self.base.raw_set("redis", self.stages.raw_get::<Table>(name)?)
    }

    /// Leaves nothing behind for the next run.
    pub fn end(&self) -> Result<()> {
        for name in ["KEYS", "ARGV"] {
            self.base.raw_set(name, Value::Nil)?;
        }
        self.lua.set_named_registry_value(REGISTERED, Value::Nil)?;
        let dirty = self.proxies.iter().filter(|proxy| !proxy.is_empty());
        dirty.into_iter().try_for_each(Table::clear)
    }

    /// Runs the chunk of a library; returns the functions that it registers.
    ///
    /// # Errors
    /// What it raised, in words, or that there is no memory.
    pub fn load(
        &mut self,
        code: &[u8],
        body: &[u8],
    ) -> Result<std::result::Result<Table, Vec<u8>>> {
        let budget = self.meter.budget();
        let chunk = self.compile(Sha1::digest(code).into(), body, "@user_function");
        self.meter.resume(budget);
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(error) => {
                let text = raise::in_words(&error);
                return Ok(Err(format!("ERR Error compiling function: {text}").into_bytes()));
            }
        };
        let registered = self.lua.create_table()?;
        self.lua.set_named_registry_value(REGISTERED, &registered)?;
        self.enter(Stage::Load)?;
        let (ok, found): (bool, Value) = self.runner.call(chunk)?;
        Ok(match ok {
            true => Ok(registered),
            false => {
                let (text, ..) = self.raised(&found)?;
                Err([b"ERR Error registering functions: ", text.as_slice()].concat())
            }
        })
    }

    /// The code of the function `name` of a library, which is run for it.
    fn callback(
        &mut self,
        code: &[u8],
        name: &str,
    ) -> Result<std::result::Result<Function, Vec<u8>>> {
        let registered = match shebang::of_library(code) {
            Ok((_, body)) => self.load(code, body)?,
            Err(text) => Err(text),
        };
        // A function that has kept the library's own `redis` registers nothing any more.
        self.lua.set_named_registry_value(REGISTERED, Value::Nil)?;
        let registered = match registered {
            Ok(registered) => registered,
            Err(text) => return Ok(Err(text)),
        };
        for function in registered.sequence_values::<Table>() {
            let function = function?;
            if name_of(&self.lua, &function)? == name.as_bytes() {
                return Ok(Ok(function.raw_get("callback")?));
            }
        }
        Ok(Err(b"ERR Function not found".to_vec()))
    }

    /// The text that was raised, and where, if that is known.
    fn raised(&self, found: &Value) -> Result<(Vec<u8>, Option<String>)> {
        let Value::Table(table) = found else {
            let text = self.lua.coerce_string(found.clone())?;
            let text = text.map_or(b"ERR".to_vec(), |text| text.as_bytes().to_vec());
            return Ok((text, None));
        };
        let text = match table.raw_get("err")? {
            Value::String(text) => text.as_bytes().to_vec(),
            _ => b"ERR unknown error".to_vec(),
        };
        let (source, line) = (table.raw_get("source")?, table.raw_get("line")?);
        let place = match (source, line) {
            (Value::String(source), Value::Integer(line)) => {
                Some(format!("{}:{line}", source.to_string_lossy()))
            }
            (Value::String(source), Value::Number(line)) => {
                Some(format!("{}:{line}", source.to_string_lossy()))
            }
            _ => None,
        };
        Ok((text, place))
    }

    /// Runs `task` with its keys and arguments, and answers.
    ///
    /// # Errors
    /// It was stopped, or Lua has no memory for it.
    pub fn run<'t>(
        &mut self,
        run: &mut Run<'_, 't>,
        task: Task<'_>,
        [keys, args]: [&[&[u8]]; 2],
        reply: &mut Reply<'_>,
    ) -> Result<std::result::Result<(), Stop>> {
        let (function, name) = match task {
            Task::Script { sha, text } => {
                let budget = self.meter.budget();
                let function = self.script(sha, text);
                self.meter.resume(budget);
                match function {
                    Ok(function) => (function, hex(&sha)),
                    Err(error) => {
                        reply.error(&compile_error(&error));
                        return Ok(Ok(()));
                    }
                }
            }
            Task::Function { name, library } => {
                let loaded = self.callback(library, name)?;
                match (self.meter.stopped(), loaded) {
                    (Some(why), _) => return Ok(Err(why)),
                    (None, Ok(function)) => (function, name.to_owned()),
                    (None, Err(text)) => {
                        reply.error(&text);
                        return Ok(Ok(()));
                    }
                }
            }
        };
        let texts = |texts: &[&[u8]]| -> Result<Table> {
            let table = self.lua.create_table_with_capacity(texts.len(), 0)?;
            for text in texts {
                table.raw_push(self.lua.create_string(text)?)?;
            }
            Ok(table)
        };
        let (keys, args) = (texts(keys)?, texts(args)?);
        let mut given = MultiValue::from_vec(vec![Value::Function(function)]);
        match task {
            Task::Script { .. } => {
                self.enter(Stage::Script)?;
                self.base.raw_set("KEYS", keys)?;
                self.base.raw_set("ARGV", args)?;
            }
            Task::Function { .. } => {
                self.enter(Stage::Function)?;
                given.extend([Value::Table(keys), Value::Table(args)]);
            }
        }
        let runner = &self.runner;
        let ended = self.lua.scope(|scope| {
            let host = scope.create_function_mut(|lua, args| run.ask(lua, args))?;
            self.lua.set_named_registry_value(HOST, host)?;
            runner.call::<(bool, Value)>(given)
        });
        self.lua.set_named_registry_value(HOST, Value::Nil)?;
        if let Some(why) = self.meter.stopped() {
            return Ok(Err(why));
        }
        match ended? {
            (true, value) => {
                run.caller.is_counted = is_counted(&value)?;
                Ok(convert::answer(&value, reply, run.caller.version))
            }
            (false, found) => {
                run.caller.is_counted = is_counted(&found)?;
                let (mut text, place) = self.raised(&found)?;
                text.extend(format!(" script: {name}").bytes());
                text.extend(place.iter().flat_map(|place| format!(", on {place}.").into_bytes()));
                reply.error(&text);
                Ok(Ok(()))
            }
        }
    }
}

/// Whether what a script returned or raised is the error of a command, which has been counted.
fn is_counted(found: &Value) -> Result<bool> {
    match found {
        Value::Table(table) => table.raw_get(raise::COUNTED),
        _ => Ok(false),
    }
}

/// The functions and libraries that the prelude is given.
fn host(lua: &Lua, meter: &Rc<Meter>, random: &Random, json: &Json) -> Result<Table> {
    let host = lua.create_table()?;
    let watched = meter.clone();
    let stopped = move |_: &Lua, ()| Ok(watched.stopped().is_some());
    host.raw_set("stopped", lua.create_function(stopped)?)?;
    host.raw_set("plain", lua.create_function(raise::plain)?)?;
    host.raw_set("where", lua.create_function(place)?)?;
    let charged = meter.clone();
    let charge = move |_: &Lua, bytes: f64| charged_for(&charged, bytes);
    host.raw_set("charge", lua.create_function(charge)?)?;
    host.raw_set("strings", strings(lua, meter)?)?;
    let [draw, seed] = random.functions(lua)?;
    host.raw_set("random", draw)?;
    host.raw_set("randomseed", seed)?;
    host.raw_set("cjson", json.library(lua)?)?;
    host.raw_set("cmsgpack", cmsgpack::library(lua)?)?;
    host.raw_set("bit", bits::library(lua)?)?;
    host.raw_set("struct", packed::library(lua)?)?;
    let [script, call, load] = redis::tables(lua)?;
    host.raw_set("script", script)?;
    host.raw_set("call", call)?;
    host.raw_set("load", load)?;
    Ok(host)
}

fn charged_for(meter: &Meter, bytes: f64) -> Result<()> {
    match meter.charge(bytes.max(0.0) as u64 / BYTES_PER_INSTRUCTION) {
        true => Ok(()),
        false => Err(mlua::Error::runtime("stopped")),
    }
}

/// Where the script is: of the frame nearest to the top that is a script's.
fn place(lua: &Lua, (): ()) -> Result<(Option<String>, Option<usize>)> {
    const FRAMES_MAX: usize = 64;
    for level in 1..FRAMES_MAX {
        let found = lua.inspect_stack(level, |frame| {
            let source = frame.source().source?.into_owned();
            let is_own = matches!(source.as_str(), "@user_script" | "@user_function");
            is_own.then(|| (source, frame.current_line()))
        });
        match found {
            Some(Some((source, Some(line)))) => return Ok((Some(source), Some(line))),
            Some(_) => {}
            None => break,
        }
    }
    Ok((None, None))
}

/// Functions of `string` that take time by the length of a text, which the meter counts.
fn strings(lua: &Lua, meter: &Rc<Meter>) -> Result<Table> {
    let table = lua.create_table()?;
    let counted = meter.clone();
    let rep = move |lua: &Lua, args: MultiValue| {
        let text = argument::text(lua, &args, 0, "rep")?;
        let count = argument::number(lua, &args, 1, "rep")?.max(0.0) as usize;
        let bytes = text.len().saturating_mul(count);
        charged_for(&counted, bytes as f64)?;
        if bytes > MEMORY_MAX {
            return Err(mlua::Error::MemoryError("not enough memory".into()));
        }
        lua.create_string(text.repeat(count))
    };
    table.raw_set("rep", lua.create_function(rep)?)?;
    type Mapped = fn(&mut Vec<u8>);
    let maps: [(&str, Mapped); 3] = [
        ("upper", |text| text.make_ascii_uppercase()),
        ("lower", |text| text.make_ascii_lowercase()),
        ("reverse", |text| text.reverse()),
    ];
    for (name, map) in maps {
        let counted = meter.clone();
        let run = move |lua: &Lua, args: MultiValue| {
            let mut text = argument::text(lua, &args, 0, name)?;
            charged_for(&counted, text.len() as f64)?;
            map(&mut text);
            lua.create_string(text)
        };
        table.raw_set(name, lua.create_function(run)?)?;
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn what_is_no_script_is_told() {
        let error = String::from_utf8(check(b"bad(").unwrap_err()).unwrap();
        assert!(error.starts_with("ERR Error compiling script (new function): user_script:1:"));
        assert_eq!(check(b"#!lua flags=no-writes\nreturn 1"), Ok(()));
    }
}
