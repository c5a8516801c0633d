//! The messages of etcd's API that rlock uses, with the numbers of etcd's `rpc.proto`, `kv.proto`
//! and `auth.proto`. Fields that rlock neither sends nor reads are left out.

use bytes::{BufMut, Bytes, BytesMut};
use prost::{Enumeration, Message, Oneof};

use crate::store::{Fault, FaultKind};

/// Bytes before each message: whether it is compressed, and its length (gRPC over HTTP/2).
const PREFIX: usize = 5;

/// Returns a message as it is sent.
pub fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(PREFIX + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    frame.freeze()
}

/// Returns the length of the first message that has come, if the bytes before it have.
pub fn first_length(buffer: &[u8]) -> Option<usize> {
    let length = buffer.get(1..PREFIX)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(length)).ok()
}

/// Takes the first message that has come, if it is whole.
pub fn take_first(buffer: &mut BytesMut) -> Option<Vec<u8>> {
    let whole = PREFIX + first_length(buffer)?;
    (buffer.len() >= whole).then(|| buffer.split_to(whole)[PREFIX..].to_vec())
}

/// The origin of an answer, and its time.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ResponseHeader {
    /// The member that answered.
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    /// The store's revision then.
    #[prost(int64, tag = "3")]
    pub revision: i64,
    /// The term of raft then.
    #[prost(uint64, tag = "4")]
    pub raft_term: u64,
}

/// A key and its value.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub value: Vec<u8>,
    /// The lease that it ends with; 0: none.
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub enum SortOrder {
    None = 0,
    Ascend = 1,
    Descend = 2,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Enumeration)]
#[repr(i32)]
pub enum SortTarget {
    Key = 0,
    Create = 2,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// The store's revision that is read; 0: the newest.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    #[prost(enumeration = "SortOrder", tag = "5")]
    pub sort_order: i32,
    #[prost(enumeration = "SortTarget", tag = "6")]
    pub sort_target: i32,
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
    /// Keys that were made later are left out; 0: none.
    #[prost(int64, tag = "13")]
    pub max_create_revision: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub more: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub lease: i64,
    /// Whether the key keeps its lease.
    #[prost(bool, tag = "6")]
    pub ignore_lease: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Done {}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2, 3")]
    pub request: Option<Request>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum Response {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(Done),
    #[prost(message, tag = "3")]
    DeleteRange(Done),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ResponseOp {
    #[prost(oneof = "Response", tags = "1, 2, 3")]
    pub response: Option<Response>,
}

#[derive(Clone, Copy, PartialEq, Eq, Oneof)]
pub enum CompareTo {
    #[prost(int64, tag = "5")]
    Create(i64),
    #[prost(int64, tag = "6")]
    Mod(i64),
    #[prost(int64, tag = "8")]
    Lease(i64),
}

/// A condition of a transaction: that something of a key equals something.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Compare {
    /// The property of the key: 1 its create revision, 2 its revision, 4 its lease.
    #[prost(int32, tag = "2")]
    pub target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    #[prost(oneof = "CompareTo", tags = "5, 6, 8")]
    pub to: Option<CompareTo>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

/// Grants a lease.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LeaseGrantRequest {
    /// In seconds.
    #[prost(int64, tag = "1")]
    pub ttl: i64,
    #[prost(int64, tag = "2")]
    pub id: i64,
}

/// Ends a lease, and all keys that have it.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// Extends a lease by its whole length.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// Asks how long a lease lasts.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LeaseTimeToLiveRequest {
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// A lease as it was granted, kept alive or shown.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LeaseResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Time that is left, in seconds; none or less: there is no such lease.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
    /// Of a lease that is shown: its length.
    #[prost(int64, tag = "4")]
    pub granted_ttl: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct WatchResponse {
    #[prost(bool, tag = "3")]
    pub created: bool,
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Event {
    /// 0: it was put, 1: deleted.
    #[prost(int32, tag = "1")]
    pub kind: i32,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub token: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub version: String,
    /// The member that leads; 0: none is known.
    #[prost(uint64, tag = "4")]
    pub leader: u64,
    /// Troubles of the member, alarms among them.
    #[prost(string, repeated, tag = "8")]
    pub errors: Vec<String>,
    #[prost(bool, tag = "10")]
    pub is_learner: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Member {
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, repeated, tag = "4")]
    pub client_urls: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct MemberListResponse {
    #[prost(message, repeated, tag = "2")]
    pub members: Vec<Member>,
}

/// Asks a member how it is.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct StatusRequest {}

/// Asks for the members of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct MemberListRequest {}

/// Most elements that a reply may have at each of its places. They take much more memory than bytes
/// of the reply, and rlock asks for some 3,000 keys at most.
const MOST_ELEMENTS: usize = 20_000;

/// An answer.
pub trait Reply: Message + Default {
    /// Places of what is repeated: numbers of fields, from the outermost message on.
    const REPEATED: &'static [&'static [u64]] = &[];
}

impl Reply for RangeResponse {
    const REPEATED: &'static [&'static [u64]] = &[&[2]];
}

impl Reply for TxnResponse {
    const REPEATED: &'static [&'static [u64]] = &[&[3], &[3, 1, 2]];
}

impl Reply for WatchResponse {
    const REPEATED: &'static [&'static [u64]] = &[&[11]];
}

impl Reply for StatusResponse {
    const REPEATED: &'static [&'static [u64]] = &[&[8]];
}

impl Reply for MemberListResponse {
    const REPEATED: &'static [&'static [u64]] = &[&[2], &[2, 4]];
}

impl Reply for LeaseResponse {}
impl Reply for AuthenticateResponse {}
impl Reply for Done {}

/// Reads an answer.
pub fn read<R: Reply>(answer: &[u8]) -> Result<R, Fault> {
    let is_crowded = |place: &&[u64]| count(answer, place) > MOST_ELEMENTS;
    if R::REPEATED.iter().any(is_crowded) {
        let why = format!("a reply of over {MOST_ELEMENTS} elements");
        return Err(Fault::new(FaultKind::Unknown, why));
    }
    R::decode(answer).map_err(|_| malformed())
}

/// Number of elements at `place` of a message, as far as it can be read.
fn count(message: &[u8], place: &[u64]) -> usize {
    let [first, inner @ ..] = place else {
        return 1;
    };
    fields(message)
        .filter(|(number, _)| number == first)
        .map(|(_, field)| count(field, inner))
        .sum()
}

/// Returns the fields of a message that have a length, with their numbers
/// (protobuf.dev, Encoding). Those of a group count as the message's own.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let tag = varint(&mut rest)?;
            match tag & 7 {
                0 => drop(varint(&mut rest)?),
                1 => rest = rest.get(8..)?,
                2 => {
                    let length = usize::try_from(varint(&mut rest)?).ok()?;
                    let (field, behind) = rest.split_at_checked(length)?;
                    rest = behind;
                    return Some((tag >> 3, field));
                }
                3 | 4 => {}
                5 => rest = rest.get(4..)?,
                _ => return None,
            }
        }
    })
}

/// Takes a number off the beginning of `rest`.
fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// A request: the path of the call, and its two messages.
pub trait Call: Message + Clone + 'static {
    /// The answer.
    type Reply: Reply;

    /// The path.
    fn path(&self) -> &'static str;

    /// Whether `reply` tells all that was asked for.
    fn is_answered_by(&self, _reply: &Self::Reply) -> bool {
        true
    }
}

macro_rules! call {
    ($request:ty => $reply:ty, $path:literal) => {
        impl Call for $request {
            type Reply = $reply;

            fn path(&self) -> &'static str {
                concat!("/etcdserverpb.", $path)
            }
        }
    };
}

call!(RangeRequest => RangeResponse, "KV/Range");
call!(LeaseGrantRequest => LeaseResponse, "Lease/LeaseGrant");
call!(AuthenticateRequest => AuthenticateResponse, "Auth/Authenticate");
call!(LeaseRevokeRequest => Done, "Lease/LeaseRevoke");
call!(LeaseKeepAliveRequest => LeaseResponse, "Lease/LeaseKeepAlive");
call!(LeaseTimeToLiveRequest => LeaseResponse, "Lease/LeaseTimeToLive");
call!(StatusRequest => StatusResponse, "Maintenance/Status");
call!(MemberListRequest => MemberListResponse, "Cluster/MemberList");

impl Call for TxnRequest {
    type Reply = TxnResponse;

    fn path(&self) -> &'static str {
        "/etcdserverpb.KV/Txn"
    }

    /// A range that is missing would be read as one without keys.
    fn is_answered_by(&self, reply: &TxnResponse) -> bool {
        let asked = if reply.succeeded {
            &self.success
        } else {
            &self.failure
        };
        let is_asked = |op: &&RequestOp| matches!(op.request, Some(Request::Range(_)));
        let is_told = |op: &&ResponseOp| matches!(op.response, Some(Response::Range(_)));
        reply.responses.iter().filter(is_told).count() >= asked.iter().filter(is_asked).count()
    }
}

pub fn header(header: Option<ResponseHeader>) -> Result<ResponseHeader, Fault> {
    header.ok_or_else(malformed)
}

pub fn malformed() -> Fault {
    Fault::new(FaultKind::Unknown, "a malformed reply")
}

/// Returns the keys of all ranges of an answer.
pub fn kvs(reply: TxnResponse) -> impl Iterator<Item = KeyValue> {
    let ranges = reply
        .responses
        .into_iter()
        .filter_map(|op| match op.response {
            Some(Response::Range(range)) => Some(range.kvs),
            _ => None,
        });
    ranges.flatten()
}

pub fn compare(key: &[u8], to: CompareTo) -> Compare {
    Compare {
        target: match to {
            CompareTo::Create(_) => 1,
            CompareTo::Mod(_) => 2,
            CompareTo::Lease(_) => 4,
        },
        key: key.to_vec(),
        to: Some(to),
    }
}

pub fn single(key: &[u8]) -> RangeRequest {
    RangeRequest {
        key: key.to_vec(),
        ..RangeRequest::default()
    }
}

pub fn op(request: Request) -> RequestOp {
    RequestOp {
        request: Some(request),
    }
}

pub fn deletion(key: &[u8]) -> RequestOp {
    op(Request::DeleteRange(DeleteRangeRequest {
        key: key.to_vec(),
    }))
}

pub fn range(request: RangeRequest) -> RequestOp {
    op(Request::Range(request))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with so many keys, each of two bytes.
    fn answer(keys: usize) -> Vec<u8> {
        let range = RangeResponse {
            kvs: vec![KeyValue::default(); keys],
            ..RangeResponse::default()
        };
        let response = ResponseOp {
            response: Some(Response::Range(range)),
        };
        TxnResponse {
            header: Some(ResponseHeader::default()),
            succeeded: true,
            responses: vec![ResponseOp::default(), response],
        }
        .encode_to_vec()
    }

    #[test]
    fn elements_are_counted_before_they_take_memory() {
        let read = |answer: &[u8]| read::<TxnResponse>(answer);
        let few = answer(MOST_ELEMENTS);
        assert_eq!(kvs(read(&few).unwrap()).count(), MOST_ELEMENTS);
        assert_eq!(count(&few, &[3]), 2);
        // A group, a field of each other form, and all in two halves.
        let unknown = [
            0x7b, 0x7c, 0x79, 0, 0, 0, 0, 0, 0, 0, 0, 0x7d, 0, 0, 0, 0, 0x78, 0xff, 1,
        ];
        let half = answer(MOST_ELEMENTS / 2 + 1);
        for crowded in [
            answer(MOST_ELEMENTS + 1),
            [&unknown[..], &half, &half].concat(),
            [0x1a, 0].repeat(MOST_ELEMENTS + 1),
        ] {
            let fault = read(&crowded).unwrap_err();
            assert!(fault.why.contains("over 20000 elements"), "{fault}");
        }
        assert!(read(&[&unknown[..], &half].concat()).is_ok());
    }
}
