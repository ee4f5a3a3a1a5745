//! Libraries of functions: FUNCTION and FCALL.
//!
//! All libraries stand in one record of the front's own ([`head::libraries_row`]), code behind
//! code, each behind its length (4 bytes, little-endian). So they are as durable as every record,
//! and loading, deleting and calling are transactions like others. A machine runs the code to learn
//! which functions it registers, and keeps what it has learned as long as the record is the same.

use std::borrow::Cow;
use std::rc::Rc;

use mlua::{Table, Value};

use super::flags::Flags;
use super::head::{Head, LIBRARIES, libraries_row};
use super::library::{Declared, Library, name_of};
use super::machine::{Machine, Task};
use super::meter::TOO_LONG;
use super::{WRITES, on_machine, perform, shebang};
use crate::commands::dump::{libraries_of, payload_of};
use crate::commands::glob::matches;
use crate::config::COLLECTION_BYTES_MAX;
use crate::connection::encode::Reply;
use crate::transactions::plan::Arg;
use crate::transactions::work::{Peek, Stop, Work};

/// Bytes of all libraries that a value may have at most are said by the limit of values.
const LOAD_TIMEOUT: &[u8] = b"ERR FUNCTION LOAD timeout: the code of the library takes too long";
const TOO_LARGE: &[u8] = b"ERR the libraries are too large: together they exceed 1000000 bytes";

/// What FUNCTION does, as plans say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Load,
    LoadInPlace,
    Delete,
    List,
    ListWithCode,
    Flush,
    Dump,
    Append,
    Replace,
    FlushAndRestore,
    Stats,
}

impl Deed {
    const ALL: [Self; 11] = [
        Self::Load,
        Self::LoadInPlace,
        Self::Delete,
        Self::List,
        Self::ListWithCode,
        Self::Flush,
        Self::Dump,
        Self::Append,
        Self::Replace,
        Self::FlushAndRestore,
        Self::Stats,
    ];

    /// Whether it changes the libraries.
    pub fn writes(self) -> bool {
        !matches!(self, Self::List | Self::ListWithCode | Self::Dump | Self::Stats)
    }

    fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|deed| *deed as u8 == number)
    }
}

/// The record of these libraries.
fn record(libraries: &[Library]) -> Vec<u8> {
    let mut record = Vec::new();
    for library in libraries {
        record.extend((library.code.len() as u32).to_le_bytes());
        record.extend_from_slice(&library.code);
    }
    record
}

/// The codes in a record.
fn codes(mut record: &[u8]) -> Option<Vec<&[u8]>> {
    let mut codes = Vec::new();
    while let Some((len, rest)) = record.split_first_chunk() {
        let (code, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        codes.push(code);
        record = rest;
    }
    record.is_empty().then_some(codes)
}

/// What is read of the libraries' record; none is there at first.
fn stored(work: &mut Work<'_>) -> Result<Vec<u8>, Stop> {
    match work.peek(libraries_row(), LIBRARIES)? {
        Peek::Absent => Ok(Vec::new()),
        Peek::Value(_, record) => Ok(record),
        Peek::Asked => Err(Stop::More),
    }
}

/// The library of `code`: runs it to learn its functions.
fn library(machine: &mut Machine, code: &[u8]) -> mlua::Result<Result<Library, Vec<u8>>> {
    let (name, body) = match shebang::of_library(code) {
        Ok(found) => found,
        Err(text) => return Ok(Err(text)),
    };
    let registered = match machine.load(code, body)? {
        Ok(registered) => registered,
        Err(text) => return Ok(Err(text)),
    };
    let mut functions = Vec::new();
    for function in registered.sequence_values::<Table>() {
        let (function, mut flags) = (function?, Flags::declared());
        if let Value::Table(names) = function.raw_get("flags")? {
            for flag in names.sequence_values::<mlua::LuaString>() {
                flags.add(&flag?.as_bytes());
            }
        }
        let name = name_of(machine.lua(), &function)?;
        let description = function.raw_get::<Option<mlua::LuaString>>("description")?;
        functions.push(Declared {
            name: String::from_utf8_lossy(&name).into_owned(),
            description: description.map(|text| text.as_bytes().to_vec()),
            flags,
        });
    }
    if functions.is_empty() {
        return Ok(Err(b"ERR No functions registered".to_vec()));
    }
    Ok(Ok(Library { name, code: code.to_vec(), functions }))
}

/// The libraries in a record.
fn known(machine: &mut Machine, record: &[u8]) -> mlua::Result<Result<Rc<Vec<Library>>, Stop>> {
    if let Some(known) = machine.known_libraries(record) {
        return Ok(Ok(known));
    }
    let Some(codes) = codes(record) else { return Ok(Err(Stop::Malformed)) };
    let (mut libraries, budget) = (Vec::new(), machine.meter().budget());
    for code in codes {
        // It was run on a whole budget when it was loaded.
        machine.refill();
        let found = library(machine, code)?;
        if let Some(why) = machine.meter().stopped() {
            return Ok(Err(why));
        }
        // What cannot be run any more, after an update of Lua, is not there.
        libraries.extend(found.ok());
    }
    machine.meter().resume(budget);
    let libraries = Rc::new(libraries);
    machine.know_libraries(record, libraries.clone());
    Ok(Ok(libraries))
}

/// Runs a function. Its arguments in a plan: the head, its name, the record of the libraries, and
/// then as of a script.
pub fn fcall<'t>(work: &mut Work<'t>, args: &[Arg<'t>], reply: &mut Reply<'_>) -> Result<(), Stop> {
    let [head, name, _, rest @ ..] = args else { return Err(Stop::Malformed) };
    let head = Head::parse(head.bytes).ok_or(Stop::Malformed)?;
    let record = stored(work)?;
    on_machine(work, head, |machine, work| {
        let libraries = match known(machine, &record)? {
            Ok(libraries) => libraries,
            Err(why) => return Ok(Err(why)),
        };
        let all = libraries
            .iter()
            .flat_map(|library| library.functions.iter().map(move |function| (library, function)));
        let mut named =
            all.filter(|(_, function)| function.name.as_bytes().eq_ignore_ascii_case(name.bytes));
        let Some((library, function)) = named.next() else {
            return Ok(Err(Stop::Error(b"ERR Function not found")));
        };
        let only_reads = function.flags.only_reads();
        if head.only_reads && !only_reads {
            return Ok(Err(Stop::Error(WRITES)));
        }
        let task = Task::Function { name: &function.name, library: &library.code };
        perform(machine, work, (head, function.flags), (task, rest), reply)
    })
}

/// FUNCTION. Its arguments in a plan: the head, the deed, the record of the libraries, and what the
/// deed needs.
pub fn function<'t>(
    work: &mut Work<'t>,
    args: &[Arg<'t>],
    reply: &mut Reply<'_>,
) -> Result<(), Stop> {
    let [head, deed, key, rest @ ..] = args else { return Err(Stop::Malformed) };
    let head = Head::parse(head.bytes).ok_or(Stop::Malformed)?;
    let deed = deed.bytes.first().copied().and_then(Deed::of).ok_or(Stop::Malformed)?;
    let given = rest.first().map_or(&[][..], |arg| arg.bytes);
    let before = stored(work)?;
    let done = on_machine(work, head, |machine, _| {
        let libraries = match known(machine, &before)? {
            Ok(libraries) => libraries,
            Err(why) => return Ok(Err(why)),
        };
        let done = perform_deed(machine, deed, &libraries, (given, reply))?;
        let loads = matches!(deed, Deed::Load | Deed::LoadInPlace);
        Ok(match machine.meter().stopped() {
            Some(Stop::Error(TOO_LONG) | Stop::Spent(TOO_LONG)) if loads => {
                Err(Stop::Error(LOAD_TIMEOUT))
            }
            Some(why) => Err(why),
            None => Ok(done),
        })
    })?;
    let after = match done {
        Ok(None) => return work.spend(reply.written()),
        Ok(Some(libraries)) => record(&libraries),
        Err(text) => {
            reply.error(&text);
            return Ok(());
        }
    };
    if after.len() > COLLECTION_BYTES_MAX {
        return Err(Stop::Error(TOO_LARGE));
    }
    let found = work.find(key)?;
    match after.is_empty() {
        true if !work.is_present(found) => {}
        true => work.change(found, None)?,
        false => work.store(found, Cow::Owned(after))?,
    }
    match (deed, shebang::of_library(given)) {
        (Deed::Load | Deed::LoadInPlace, Ok((name, _))) => reply.bulk(name.as_bytes()),
        _ => reply.status("OK"),
    }
    Ok(())
}

/// What a deed leaves of the libraries; `None`: it has answered. The inner error is answered.
type Left = Result<Option<Vec<Library>>, Vec<u8>>;

fn perform_deed(
    machine: &mut Machine,
    deed: Deed,
    libraries: &[Library],
    (given, reply): (&[u8], &mut Reply<'_>),
) -> mlua::Result<Left> {
    let mut left = libraries.to_vec();
    match deed {
        Deed::Load | Deed::LoadInPlace => {
            // As Redis does, before the code is run.
            if let Ok((name, _)) = shebang::of_library(given)
                && deed == Deed::Load
                && left.iter().any(|library| library.name == name)
            {
                return Ok(Err(format!("ERR Library '{name}' already exists").into()));
            }
            match library(machine, given)? {
                Ok(new) => {
                    if let Err(text) = add(&mut left, new, deed == Deed::LoadInPlace) {
                        return Ok(Err(text));
                    }
                }
                Err(text) => return Ok(Err(text)),
            }
            return Ok(Ok(Some(left)));
        }
        Deed::Delete => {
            left.retain(|library| library.name.as_bytes() != given);
            if left.len() == libraries.len() {
                return Ok(Err(b"ERR Library not found".to_vec()));
            }
            return Ok(Ok(Some(left)));
        }
        Deed::Flush => return Ok(Ok(Some(Vec::new()))),
        Deed::Append | Deed::Replace | Deed::FlushAndRestore => {
            if deed == Deed::FlushAndRestore {
                left.clear();
            }
            return restore(machine, left, given, deed == Deed::Replace);
        }
        Deed::List | Deed::ListWithCode => {
            let named = |library: &&Library| matches(given, library.name.as_bytes());
            let chosen: Vec<_> = libraries.iter().filter(named).collect();
            reply.array(chosen.len());
            chosen.iter().for_each(|library| tell(library, deed == Deed::ListWithCode, reply));
        }
        Deed::Dump => {
            let codes: Vec<&[u8]> = left.iter().map(|library| &library.code[..]).collect();
            reply.bulk(&payload_of(&codes));
        }
        Deed::Stats => {
            reply.map(2);
            reply.bulk(b"running_script");
            reply.null();
            reply.bulk(b"engines");
            reply.map(1);
            reply.bulk(b"LUA");
            reply.map(2);
            reply.bulk(b"libraries_count");
            reply.integer(libraries.len() as i64);
            reply.bulk(b"functions_count");
            let functions = libraries.iter().map(|library| library.functions.len());
            reply.integer(functions.sum::<usize>() as i64);
        }
    }
    Ok(Ok(None))
}

/// Adds a library, in place of one of the same name if it `replaces`.
fn add(left: &mut Vec<Library>, new: Library, replaces: bool) -> Result<(), Vec<u8>> {
    let old = left.iter().position(|library| library.name == new.name);
    match old {
        Some(_) if !replaces => {
            return Err(format!("ERR Library {} already exists", new.name).into());
        }
        Some(place) => _ = left.remove(place),
        None => {}
    }
    for library in left.iter() {
        let has = |name: &str| {
            library.functions.iter().any(|function| function.name.eq_ignore_ascii_case(name))
        };
        if let Some(function) = new.functions.iter().find(|function| has(&function.name)) {
            return Err(format!("ERR Function {} already exists", function.name).into());
        }
    }
    left.push(new);
    Ok(())
}

fn restore(
    machine: &mut Machine,
    mut left: Vec<Library>,
    payload: &[u8],
    replaces: bool,
) -> mlua::Result<Left> {
    let codes = match libraries_of(payload) {
        Ok(codes) => codes,
        Err(text) => return Ok(Err(text.to_vec())),
    };
    for code in codes {
        let added = match library(machine, &code)? {
            Ok(new) => add(&mut left, new, replaces),
            Err(text) => Err(text),
        };
        if let Err(text) = added {
            return Ok(Err(text));
        }
    }
    Ok(Ok(Some(left)))
}

fn tell(library: &Library, with_code: bool, reply: &mut Reply<'_>) {
    reply.map(if with_code { 4 } else { 3 });
    reply.bulk(b"library_name");
    reply.bulk(library.name.as_bytes());
    reply.bulk(b"engine");
    reply.bulk(b"LUA");
    reply.bulk(b"functions");
    reply.array(library.functions.len());
    for Declared { name, description, flags } in &library.functions {
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(name.as_bytes());
        reply.bulk(b"description");
        reply.bulk_or_null(description.as_deref());
        reply.bulk(b"flags");
        reply.set(flags.names().count());
        flags.names().for_each(|flag| reply.status(flag));
    }
    if with_code {
        reply.bulk(b"library_code");
        reply.bulk(&library.code);
    }
}
