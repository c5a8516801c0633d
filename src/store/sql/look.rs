//! Looks at a lock and its record, takes it away from its holder, and lists the locks of a table.

use std::sync::Arc;

use futures_util::stream;

use super::lock::{Lock, how_lost, row, seen};
use super::pool::Pool;
use super::row::{RecordKind, Row, State, dead, entry};
use super::session::{Reply, strange};
use crate::clock;
use crate::lock::key::Key;
use crate::lock::last::Record;
use crate::lock::lease::Revoked;
use crate::lock::messages::Observation;
use crate::lock::occupant::Occupant;
use crate::store::{Fault, Page, Pages, TakeAway};

/// Number of names in a page.
const PAGE: usize = 2000;

impl Lock {
    /// Returns the holder, and the record.
    pub(super) async fn look(&self) -> Result<Observation, Fault> {
        let asked = clock::now();
        let reply = self.pool.ask(&self.pool.table.look(&self.key)).await?;
        let rows = rows(&reply)?;
        let named = |name: &str| rows.iter().find(|row| row.name == name);
        let recorded = |kind: RecordKind| {
            let row = named(&format!("{}{}", kind.prefix(), self.key))?;
            entry(kind, row)
        };
        let own = named(&self.key);
        let bytes = |row: &Row| row.name.len() + row.locked_by.len();
        Ok(Observation {
            holders: own.and_then(Row::occupant).into_iter().collect(),
            foreign: own.and_then(Row::foreign),
            fence: own.and_then(Row::fence),
            last: Record {
                run: recorded(RecordKind::Last),
                success: recorded(RecordKind::Once),
            },
            size: rows.iter().map(bytes).sum(),
            ..Observation::of_nothing(asked)
        })
    }

    /// Takes the lock from its holder, or forgets a success.
    pub(super) async fn take_away(&self, how: &TakeAway) -> Result<Option<Revoked>, Fault> {
        let table = &self.pool.table;
        let (message, token) = match how {
            TakeAway::Tombstone(token, value) => {
                let told = Occupant::read(value.as_bytes(), None);
                let told = told.as_ref().and_then(Occupant::holder);
                let details = told.map(|(_, details)| details.clone());
                let value = dead(*token, &details.unwrap_or_default());
                (table.entomb(&self.key, *token, &value), Some(*token))
            }
            TakeAway::Delete(token, fence, note) => {
                let record = note.as_ref().and_then(|note| self.record_of_break(note));
                let delete = table.delete(&self.key, *token, *fence, record.as_ref());
                (delete, Some(*token))
            }
            TakeAway::DeleteForeign(seen) => {
                let text = seen.0.first().map(Vec::as_slice).unwrap_or_default();
                let text = String::from_utf8_lossy(text);
                (table.delete_foreign(&self.key, &text), None)
            }
            TakeAway::Forget(token) => (table.forget(&self.key, *token), None),
        };
        let reply = self.pool.ask(&message).await?;
        let first = reply.statements.first().ok_or_else(strange)?;
        if first.count > 0 {
            return Ok(None);
        }
        let row = seen(&reply, message.shows)?.row;
        Ok(match (how, token) {
            (TakeAway::Forget(_), _) => Some(Revoked::Missing),
            (TakeAway::Tombstone(..), Some(token))
                if row
                    .as_ref()
                    .is_some_and(|row| row.is(State::Dead, token) && row.left.is_some()) =>
            {
                None
            }
            (_, Some(token)) => Some(how_lost(row.as_ref(), token)),
            (_, None) if row.is_some_and(|row| row.left.is_some()) => Some(Revoked::TakenOver),
            (_, None) => Some(Revoked::Missing),
        })
    }
}

fn rows(reply: &Reply) -> Result<Vec<Row>, Fault> {
    let statement = reply.statements.first().ok_or_else(strange)?;
    let read = |cells: &Vec<Option<String>>| row(cells, reply.took).map(|(row, _)| row);
    statement.rows.iter().map(read).collect()
}

/// Finds the locks whose names begin with `prefix`.
pub(super) fn pages(pool: Arc<Pool>, prefix: &str) -> Pages {
    let prefix = prefix.to_owned();
    let begin = Some(None);
    Box::pin(stream::try_unfold(
        begin,
        move |last: Option<Option<String>>| {
            let (pool, prefix) = (Arc::clone(&pool), prefix.clone());
            async move {
                let Some(last) = last else { return Ok(None) };
                page(&pool, &prefix, last.as_deref()).await.map(Some)
            }
        },
    ))
}

/// Returns the names behind `last`, and how the next page begins.
async fn page(
    pool: &Pool,
    prefix: &str,
    last: Option<&str>,
) -> Result<(Page, Option<Option<String>>), Fault> {
    let reply = pool.ask(&pool.table.list(prefix, last, PAGE)).await?;
    let statement = reply.statements.first().ok_or_else(strange)?;
    let names: Vec<&str> = statement
        .rows
        .iter()
        .filter_map(|cells| cells.first()?.as_deref())
        .collect();
    if names.iter().any(|name| Some(*name) <= last) {
        return Err(strange());
    }
    let is_lock = |name: &&&str| !super::is_reserved(name);
    let keys = names.iter().filter(is_lock);
    let page = Page {
        keys: keys.filter_map(|name| Key::new("", name).ok()).collect(),
        visited: names.len() as u64,
        total: None,
        ..Page::default()
    };
    let next = names.last().filter(|_| names.len() >= PAGE);
    Ok((page, next.map(|name| Some((*name).to_owned()))))
}
