//! Finds the locks of a cluster: keys that look like entries, grouped by their folder.

use futures_util::stream;

use super::client::Client;
use super::rpc::{RangeRequest, RangeResponse, SortOrder, SortTarget};
use crate::clock;
use crate::lock::key::Key;
use crate::store::{Fault, Page, Pages};

/// Number of keys in a page.
const PAGE: i64 = 2000;

/// Finds the locks whose stored names begin with `wanted`, below the address' `prefix`.
pub(super) fn pages(client: Client, prefix: &str, wanted: &str) -> Pages {
    let slash = if prefix.is_empty() { "" } else { "/" };
    let base = format!("{prefix}{slash}");
    let from = Some(format!("{base}{wanted}").into_bytes());
    let end = end_of(format!("{base}{wanted}").as_bytes());
    Box::pin(stream::try_unfold(from, move |from| {
        let (client, base, end) = (client.clone(), base.clone(), end.clone());
        async move {
            let Some(from) = from else { return Ok(None) };
            page(&client, &base, from, end).await.map(Some)
        }
    }))
}

/// Returns the keys from `from` on, and where the next page begins.
async fn page(
    client: &Client,
    base: &str,
    from: Vec<u8>,
    end: Vec<u8>,
) -> Result<(Page, Option<Vec<u8>>), Fault> {
    // The empty key is none: the first possible one.
    let from = if from.is_empty() { vec![0] } else { from };
    let request = RangeRequest {
        key: from.clone(),
        range_end: end,
        limit: PAGE,
        sort_order: SortOrder::Ascend.into(),
        sort_target: SortTarget::Key.into(),
        keys_only: true,
        ..RangeRequest::default()
    };
    let limit = client.limit();
    let reply = clock::until(clock::now() + limit, client.ask(request)).await;
    let reply = reply.unwrap_or_else(|| Err(Fault::timeout(limit)))?;
    let visited = reply.kvs.len() as u64;
    let next = next_page(&from, &reply)?;
    let mut keys: Vec<Key> = reply
        .kvs
        .iter()
        .filter_map(|kv| lock_of(std::str::from_utf8(&kv.key).ok()?, base))
        .collect();
    keys.dedup();
    let page = Page {
        keys,
        visited,
        total: None,
        ..Page::default()
    };
    Ok((page, next))
}

/// Returns where the page behind `reply` begins, which is later than `from`; `None` at the end.
fn next_page(from: &[u8], reply: &RangeResponse) -> Result<Option<Vec<u8>>, Fault> {
    let last = reply.kvs.last().filter(|_| reply.more);
    let next = last.map(|kv| [&kv.key[..], b"\0"].concat());
    if next.as_ref().is_some_and(|next| **next <= *from) {
        let why = "its keys do not rise from page to page";
        return Err(Fault::unfit(why, "write the client port of an etcd"));
    }
    Ok(next)
}

/// Returns the lock that a key is an entry of, if it looks like one: a lease's number behind the
/// last slash, with or without `read`.
fn lock_of(key: &str, base: &str) -> Option<Key> {
    let (folder, lease) = key.strip_prefix(base)?.rsplit_once('/')?;
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_lease = (1..=16).contains(&lease.len()) && lease.bytes().all(is_hex);
    let name = folder.strip_suffix("/read").unwrap_or(folder);
    is_lease.then(|| Key::new("", name).ok()).flatten()
}

/// Returns the end of the keys that begin with `prefix`; a zero byte: there is none.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::etcd::rpc::KeyValue;

    #[test]
    fn a_server_that_has_more_of_the_same_keys_for_ever_is_none() {
        let kvs = vec![KeyValue {
            key: b"k/1f".to_vec(),
            ..KeyValue::default()
        }];
        let page = |more| RangeResponse {
            kvs: kvs.clone(),
            more,
            ..RangeResponse::default()
        };
        assert_eq!(next_page(b"k", &page(true)), Ok(Some(b"k/1f\0".to_vec())));
        assert_eq!(next_page(b"k/1f\0", &page(false)), Ok(None));
        assert!(next_page(b"k/1f\0", &page(true)).is_err());
    }

    #[test]
    fn locks_are_known_by_the_keys_of_their_entries() {
        let lock = |key, base| lock_of(key, base).map(|key| key.stored().to_owned());
        assert_eq!(lock("job/694d8a1", ""), Some("job".to_owned()));
        assert_eq!(lock("locks/a/b/1f", "locks/"), Some("a/b".to_owned()));
        assert_eq!(lock("job/read/1f", ""), Some("job".to_owned()));
        for key in [
            "job",
            "job/",
            "job/x1",
            "job/12345678901234567",
            "rlock:once:job",
        ] {
            assert_eq!(lock(key, ""), None, "{key}");
        }
        assert_eq!(end_of(b"a/"), b"a0");
        assert_eq!((end_of(b""), end_of(&[255])), (vec![0], vec![0]));
    }
}
