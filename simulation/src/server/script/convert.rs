//! Values of Lua and replies of the server, converted into each other as Redis does it for RESP2.

use std::borrow::Cow;

use mlua::{Lua, LuaString, Table, Value};

use super::super::number;
use super::super::refusal::Refusal;
use super::super::reply::Reply;

/// Converts a reply for a script.
pub(super) fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    Ok(match reply {
        Reply::Integer(number) => Value::Number(as_double(number)),
        Reply::Bulk(bytes) | Reply::Verbatim(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Double(number) => Value::String(lua.create_string(number::written(number))?),
        Reply::Null | Reply::NullArray => Value::Boolean(false),
        Reply::Status(text) => Value::Table(field(lua, "ok", &text)?),
        Reply::Error(refusal) => Value::Table(error(lua, &refusal)?),
        Reply::Array(items) | Reply::Push(items) | Reply::Several(items) => {
            sequence(lua, items.into_iter())?
        }
        Reply::Map(pairs) => {
            sequence(lua, pairs.into_iter().flat_map(|(key, value)| [key, value]))?
        }
        Reply::Scored(members) => {
            let flat = members
                .into_iter()
                .flat_map(|(member, score)| [Reply::Bulk(member), Reply::Double(score)]);
            sequence(lua, flat)?
        }
    })
}

/// Returns the table that a script gets for an error.
pub(super) fn error(lua: &Lua, refusal: &Refusal) -> mlua::Result<Table> {
    field(lua, "err", refusal.0.as_bytes())
}

fn field(lua: &Lua, name: &str, text: &[u8]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, lua.create_string(text)?)?;
    Ok(table)
}

fn sequence(lua: &Lua, items: impl Iterator<Item = Reply>) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    for (index, item) in (1..).zip(items) {
        table.raw_seti(index, to_lua(lua, item)?)?;
    }
    Ok(Value::Table(table))
}

/// Converts what a script returns. A number loses its fraction, and an array ends at its first nil.
pub(super) fn to_reply(value: Value) -> mlua::Result<Reply> {
    Ok(match value {
        Value::String(text) => Reply::bulk(&*text.as_bytes()),
        Value::Integer(number) => Reply::Integer(number),
        Value::Number(number) => Reply::Integer(truncated(number)),
        Value::Boolean(true) => Reply::Integer(1),
        Value::Table(table) => table_to_reply(&table)?,
        _ => Reply::Null,
    })
}

fn table_to_reply(table: &Table) -> mlua::Result<Reply> {
    if let Value::String(text) = table.raw_get("err")? {
        return Ok(Reply::Error(Refusal::with(text.to_string_lossy())));
    }
    if let Value::String(text) = table.raw_get("ok")? {
        return Ok(Reply::Status(Cow::Owned(text.as_bytes().to_vec())));
    }
    let mut items = Vec::with_capacity(table.raw_len());
    for index in 1.. {
        match table.raw_get(index)? {
            Value::Nil => break,
            item => items.push(to_reply(item)?),
        }
    }
    Ok(Reply::Array(items))
}

/// Returns the bytes of an argument of a call; none if it is neither a string nor a number.
pub(super) fn argument(value: Value) -> Option<Argument> {
    match value {
        Value::String(text) => Some(Argument::Text(text)),
        Value::Integer(number) => Some(Argument::Number(number::written(as_double(number)))),
        Value::Number(number) => Some(Argument::Number(number::written(number))),
        _ => None,
    }
}

/// An argument of a call.
pub(super) enum Argument {
    Text(LuaString),
    Number(Vec<u8>),
}

#[allow(clippy::cast_precision_loss, reason = "Lua 5.1 has no other numbers")]
fn as_double(number: i64) -> f64 {
    number as f64
}

#[allow(clippy::cast_possible_truncation, reason = "Redis truncates too")]
fn truncated(number: f64) -> i64 {
    number as i64
}
