//! EVAL, EVALSHA and SCRIPT: scripts in an embedded Lua 5.1.
//!
//! Each thread has one Lua state for all its servers. While a script runs, the state of its server
//! is with the engine, so that `redis.call` reaches it. A script is compiled once. A server knows
//! those that it has compiled itself.

mod convert;

use std::cell::RefCell;
use std::cmp::Ordering;
use std::ops::Deref;
use std::rc::Rc;

use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Value};
use sha1_smol::Sha1;

use super::number;
use super::refusal::Refusal;
use super::reply::{Outcome, Reply};
use super::state::State;
use convert::Argument;

/// The chunk that a script is to Lua, in Redis' words.
const CHUNK: &str = "@user_script";

thread_local! {
    static ENGINE: Engine = Engine::new().unwrap_or_else(|error| panic!("Lua does not start: {error}"));
}

/// Runs a script with its KEYS and ARGV.
pub(super) fn eval(state: &mut State, args: &[&[u8]]) -> Outcome {
    let (keys, words) = keys_and_words(args)?;
    ENGINE.with(|engine| engine.eval(state, args[1], keys, words))
}

/// The same for a script that the server keeps, by its digest.
pub(super) fn evalsha(state: &mut State, args: &[&[u8]]) -> Outcome {
    let (keys, words) = keys_and_words(args)?;
    let digest = String::from_utf8_lossy(args[1]).to_ascii_lowercase();
    if !state.scripts.contains(&digest) {
        return Err(Refusal::new(
            "NOSCRIPT No matching script. Please use EVAL.",
        ));
    }
    ENGINE.with(|engine| engine.evalsha(state, &digest, keys, words))
}

/// SCRIPT EXISTS and SCRIPT FLUSH.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the table of commands has one type of function"
)]
pub(super) fn script(state: &mut State, args: &[&[u8]]) -> Outcome {
    let digest = |word: &&[u8]| String::from_utf8_lossy(word).to_ascii_lowercase();
    if args[1].eq_ignore_ascii_case(b"FLUSH") {
        state.scripts.clear();
        return Ok(Reply::OK);
    }
    let known = args[2..]
        .iter()
        .map(|word| Reply::Integer(i64::from(state.scripts.contains(&digest(word)))));
    Ok(Reply::Array(known.collect()))
}

/// Words of a request.
type Words<'a> = &'a [&'a [u8]];

fn keys_and_words(args: Words<'_>) -> Result<(Words<'_>, Words<'_>), Refusal> {
    let count = number::integer(args[2]).ok_or(Refusal::NOT_AN_INTEGER)?;
    let count =
        usize::try_from(count).map_err(|_| Refusal::new("ERR Number of keys can't be negative"))?;
    let too_many = Refusal::new("ERR Number of keys can't be greater than number of args");
    args[3..].split_at_checked(count).ok_or(too_many)
}

/// The Lua state of this thread.
struct Engine {
    lua: Lua,
    /// Runs a function; returns whether it succeeded, and its value or the error.
    run: Function,
    /// In the order of [`order`].
    scripts: RefCell<Vec<Script>>,
    /// The state of the server whose script runs.
    running: Rc<RefCell<State>>,
}

/// A script that was compiled.
struct Script {
    text: Vec<u8>,
    function: Function,
    /// Its SHA-1, by which errors name it.
    digest: String,
}

/// The lengths tell most scripts apart: rlock's begin alike and are several KiB long.
fn order(one: &[u8], two: &[u8]) -> Ordering {
    one.len().cmp(&two.len()).then_with(|| one.cmp(two))
}

impl Engine {
    fn new() -> mlua::Result<Self> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
        // A panic in a command must end the simulation, and costs each pcall less if Lua's own is
        // used.
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        let running = Rc::new(RefCell::new(State::default()));
        let caller = || {
            let running = Rc::clone(&running);
            move |values| with_words(values, |words| running.borrow_mut().call(words))
        };
        let (call, quiet, checked) = (caller(), caller(), Rc::clone(&running));
        let functions = (
            lua.create_function(move |lua, values: MultiValue| {
                convert::to_lua(lua, call(values).map_err(raised)?)
            })?,
            lua.create_function(move |lua, values: MultiValue| {
                convert::to_lua(lua, quiet(values).unwrap_or_else(Reply::Error))
            })?,
            lua.create_function(move |_, values: MultiValue| {
                with_words(values, |words| checked.borrow().may(words)).map_err(raised)
            })?,
            lua.create_function(describe)?,
            lua.create_function(explain)?,
        );
        let run = lua
            .load(include_str!("prelude.lua"))
            .set_name("=prelude")
            .call(functions)?;
        Ok(Self {
            lua,
            run,
            scripts: RefCell::default(),
            running,
        })
    }

    fn eval(&self, state: &mut State, text: &[u8], keys: &[&[u8]], words: &[&[u8]]) -> Outcome {
        let (function, digest) = self.compiled(text)?;
        state.scripts.insert(digest.clone());
        self.run(state, &function, keys, words, &digest)
    }

    fn evalsha(&self, state: &mut State, digest: &str, keys: &[&[u8]], words: &[&[u8]]) -> Outcome {
        let scripts = self.scripts.borrow();
        // A server keeps only what was compiled here.
        let script = scripts.iter().find(|script| script.digest == digest);
        let function = script
            .unwrap_or_else(|| panic!("{digest} was compiled by another thread"))
            .function
            .clone();
        drop(scripts);
        self.run(state, &function, keys, words, digest)
    }

    fn run(
        &self,
        state: &mut State,
        function: &Function,
        keys: &[&[u8]],
        words: &[&[u8]],
        digest: &str,
    ) -> Outcome {
        std::mem::swap(&mut *self.running.borrow_mut(), state);
        let reply = self.execute(function, keys, words, digest);
        std::mem::swap(&mut *self.running.borrow_mut(), state);
        // Lua itself fails only without memory.
        reply.unwrap_or_else(|error| panic!("Lua failed: {error}"))
    }

    fn compiled(&self, text: &[u8]) -> Result<(Function, String), Refusal> {
        let mut scripts = self.scripts.borrow_mut();
        let at = match scripts.binary_search_by(|script| order(&script.text, text)) {
            Ok(at) => at,
            Err(at) => {
                let compiled = self
                    .lua
                    .load(text)
                    .set_name(CHUNK)
                    .set_mode(mlua::chunk::ChunkMode::Text)
                    .into_function();
                let function = compiled.map_err(|error| cannot_compile(&error))?;
                let digest = Sha1::from(text).digest().to_string();
                scripts.insert(
                    at,
                    Script {
                        text: text.to_vec(),
                        function,
                        digest,
                    },
                );
                at
            }
        };
        Ok((scripts[at].function.clone(), scripts[at].digest.clone()))
    }

    fn execute(
        &self,
        function: &Function,
        keys: &[&[u8]],
        words: &[&[u8]],
        digest: &str,
    ) -> mlua::Result<Outcome> {
        let globals = self.lua.globals();
        for (name, words) in [("KEYS", keys), ("ARGV", words)] {
            let table = self.lua.create_table_with_capacity(words.len(), 0)?;
            for (index, word) in (1..).zip(words) {
                table.raw_seti(index, self.lua.create_string(word)?)?;
            }
            globals.raw_set(name, table)?;
        }
        let (succeeded, value): (bool, Value) = self.run.call(function)?;
        if succeeded {
            return Ok(Ok(convert::to_reply(value)?));
        }
        let (Value::Table(error), true) = (value, !succeeded) else {
            return Ok(Err(Refusal::new("ERR")));
        };
        let text = error.raw_get::<mlua::LuaString>("err")?.to_string_lossy();
        Ok(Err(Refusal::with(
            match error.raw_get::<Option<usize>>("line")? {
                Some(line) => format!("{text} script: {digest}, on {CHUNK}:{line}."),
                None => text,
            },
        )))
    }
}

fn cannot_compile(error: &mlua::Error) -> Refusal {
    let why = match error {
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    };
    Refusal::with(format!("ERR Error compiling script (new function): {why}"))
}

/// Hands the arguments of a call on as bytes.
fn with_words<T>(
    values: MultiValue,
    run: impl FnOnce(&[&[u8]]) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    if values.is_empty() {
        return Err(Refusal::new(
            "ERR Please specify at least one argument for this redis lib call",
        ));
    }
    let arguments: Option<Vec<Argument>> = values.into_iter().map(convert::argument).collect();
    let wrong = Refusal::new("ERR Lua redis lib command arguments must be strings or integers");
    let arguments = arguments.ok_or(wrong)?;
    let borrowed: Vec<_> = arguments
        .iter()
        .map(|argument| match argument {
            Argument::Text(text) => Bytes::Lua(text.as_bytes()),
            Argument::Number(digits) => Bytes::Digits(digits),
        })
        .collect();
    let words: Vec<&[u8]> = borrowed.iter().map(|bytes| &**bytes).collect();
    run(&words)
}

/// Bytes of an argument, where they are.
enum Bytes<'a> {
    Lua(mlua::BorrowedBytes),
    Digits(&'a [u8]),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Lua(bytes) => bytes,
            Self::Digits(digits) => digits,
        }
    }
}

/// The error that Lua raises for a refusal.
fn raised(refusal: Refusal) -> mlua::Error {
    mlua::Error::external(refusal)
}

/// Returns the table that an error is for a script.
fn describe(lua: &Lua, error: Value) -> mlua::Result<Value> {
    Ok(match error {
        Value::Error(error) => match refusal_in(&error) {
            Some(refusal) => Value::Table(convert::error(lua, refusal)?),
            None => return Err(*error),
        },
        other => other,
    })
}

/// Returns the refusal that a command's error carries.
fn refusal_in(error: &mlua::Error) -> Option<&Refusal> {
    match error {
        mlua::Error::CallbackError { cause, .. } => refusal_in(cause),
        other => other.downcast_ref(),
    }
}

/// Adds the line of the script where an error arose (eval.c, `__redis__err__handler`).
fn explain(lua: &Lua, error: Value) -> mlua::Result<Value> {
    let table = match describe(lua, error)? {
        Value::Table(table) => table,
        other => convert::error(lua, &Refusal::with(format!("ERR {}", other.to_string()?)))?,
    };
    for level in 1.. {
        let place = lua.inspect_stack(level, |frame| {
            let is_ours = frame.source().source.is_some_and(|source| source == CHUNK);
            frame.current_line().filter(|_| is_ours)
        });
        match place {
            Some(None) => {}
            Some(Some(line)) => {
                table.raw_set("line", line)?;
                break;
            }
            None => break,
        }
    }
    Ok(Value::Table(table))
}
