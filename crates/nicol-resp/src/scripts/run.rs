//! One script under way, as Lua sees it: its requests, and what they answer.

use mlua::{Lua, MultiValue, Result, Value};

use super::caller::Caller;
use super::meter::{BYTES_PER_INSTRUCTION, COMMAND_COST};
use super::{convert, raise};
use crate::commands::float::format_double;
use crate::connection::encode::Protocol;
use crate::transactions::stop::Stop;
use crate::transactions::work::{Scripted, Work};

const NO_ARGUMENTS: &[u8] = b"ERR Please specify at least one argument for this redis lib call";
const NO_TEXT: &[u8] = b"ERR Lua redis lib command arguments must be strings or integers";

/// What a script asks of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Call,
    /// As `Call`, with errors as values.
    ProtectedCall,
    /// Whether its user may run a command.
    CheckCommand,
    /// Choose the version of the protocol in which it sees replies.
    SetVersion,
}

impl Request {
    const ALL: [Self; 4] = [Self::Call, Self::ProtectedCall, Self::CheckCommand, Self::SetVersion];

    fn of(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|request| *request as i64 == number)
    }
}

/// A script under way.
pub struct Run<'r, 't> {
    work: &'r mut Work<'t>,
    /// What it is to the commands that it calls.
    pub caller: Caller<'t>,
    output: Vec<u8>,
}

impl<'r, 't> Run<'r, 't> {
    pub fn new(work: &'r mut Work<'t>, caller: Caller<'t>) -> Self {
        Self { work, caller, output: Vec::new() }
    }

    /// Does what the script asks: a number of [`Request`], and its arguments.
    pub fn ask(&mut self, lua: &Lua, mut args: MultiValue) -> Result<Value> {
        let request = args.pop_front().and_then(|value| value.as_i64()).and_then(Request::of);
        if self.caller.meter.stopped().is_some() {
            return Err(mlua::Error::runtime("stopped"));
        }
        match request {
            Some(Request::Call) => self.call(lua, &args)?.map_err(raise::of_command),
            Some(Request::ProtectedCall) => match self.call(lua, &args)? {
                Ok(value) => Ok(value),
                Err(text) => raise::table_of_command(lua, &text).map(Value::Table),
            },
            Some(Request::CheckCommand) => {
                self.read(&args).map_err(raise::reply)?;
                let may_call = (self.work.commands().may_call)(&self.caller);
                may_call.map(Value::Boolean).map_err(raise::reply)
            }
            Some(Request::SetVersion) => match args.front() {
                Some(value) if args.len() == 1 => {
                    let version = lua.coerce_number(value.clone())?.map(|version| version as u8);
                    let version = version.and_then(Protocol::from_number);
                    self.caller.version =
                        version.ok_or_else(|| raise::reply("ERR RESP version must be 2 or 3."))?;
                    Ok(Value::Nil)
                }
                _ => Err(raise::reply("ERR redis.setresp() requires one argument.")),
            },
            None => Err(mlua::Error::runtime("no request")),
        }
    }

    /// Ends the run for this reason.
    fn stop(&self, why: Stop) -> mlua::Error {
        self.caller.meter.stop(why);
        mlua::Error::runtime("stopped")
    }

    /// Reads the words of a command.
    fn read(&mut self, args: &MultiValue) -> std::result::Result<(), &'static [u8]> {
        let words = &mut self.caller.words;
        words.clear();
        for arg in args {
            match arg {
                Value::String(text) => words.push(&text.as_bytes()),
                Value::Integer(number) => words.push(number.to_string().as_bytes()),
                Value::Number(number) => words.push(format_double(*number).as_bytes()),
                _ => return Err(NO_TEXT),
            }
        }
        if args.is_empty() { Err(NO_ARGUMENTS) } else { Ok(()) }
    }

    /// Runs a command. The inner error is the command's.
    fn call(
        &mut self,
        lua: &Lua,
        args: &MultiValue,
    ) -> Result<std::result::Result<Value, Vec<u8>>> {
        if let Err(text) = self.read(args) {
            return Ok(Err(text.to_vec()));
        }
        let mut output = std::mem::take(&mut self.output);
        output.clear();
        let done = (self.work.commands().call)(self.work, &mut self.caller, &mut output);
        let cost = COMMAND_COST + output.len() as u64 / BYTES_PER_INSTRUCTION;
        let found = match done {
            Err(Stop::Error(text)) => Ok(Err(text.to_vec())),
            Err(why) => Err(self.stop(why)),
            Ok(()) if !self.caller.meter.charge(cost) => Err(mlua::Error::runtime("stopped")),
            // A guess that lacks more records goes on without the reply.
            Ok(()) if output.is_empty() => Ok(Ok(Value::Boolean(false))),
            Ok(()) => Ok(match output.strip_prefix(b"-") {
                Some(text) => Err(text.trim_ascii_end().to_vec()),
                None => Ok(convert::value(lua, &mut &output[..])?),
            }),
        };
        self.output = output;
        found
    }
}
