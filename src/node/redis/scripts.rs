//! The scripts that a server executes. Each is several files of `scripts/`, one after the other, as build.rs stripped them.

macro_rules! script {
    ($($name:ident)+) => {
        concat!(include_str!(concat!(env!("OUT_DIR"), "/base.lua")), $(include_str!(concat!(env!("OUT_DIR"), "/", stringify!($name), ".lua"))),+)
    };
}

pub const ACQUIRE: &str = script!(identity fence put grant_at_once peek_any queue turn marker crowd enter acquire);
pub const ACQUIRE_NEWEST: &str =
    script!(identity fence put peek_any queue turn marker crowd enter newest superseded acquire);
pub const ACQUIRE_AS_REDISSON: &str =
    script!(identity fence put_hash grant_at_once peek_any queue turn marker crowd enter acquire);
pub const JOIN: &str = script!(identity fence peek_any queue turn marker crowd members admit enter join);
pub const JOIN_NEWEST: &str =
    script!(identity fence peek_any queue turn marker crowd members admit enter newest superseded join);
pub const ANNOUNCE: &str = script!(peek queue newest announce);
pub const RENEW: &str = script!(peek_any token counter marker members admit renew);
pub const RENEW_ALONE: &str = script!(peek_any token marker renew_alone);
pub const RELEASE_ALONE: &str = script!(peek_any token marker redisson delete release_alone);
pub const HEAL: &str = script!(peek token counter marker members admit put heal);
pub const HEAL_AS_REDISSON: &str = script!(peek_any token counter marker members admit put_hash heal);
pub const TOMBSTONE: &str = script!(peek_any token marker members admit tombstone);
pub const FORCE_DELETE: &str =
    script!(peek_any token counter queue marker members pass redisson delete parked any force_delete);
pub const UNMARK: &str = script!(peek token unmark);
pub const DELETE_FOREIGN: &str = script!(peek_any queue delete_foreign);
pub const OBSERVE: &str = script!(peek_any marker members admit observe);
pub const RELEASE: &str = script!(token release_at_once peek queue marker pass exclusive release);
pub const RELEASE_AS_REDISSON: &str = script!(peek queue marker pass redisson exclusive_hash release);
pub const LEAVE: &str = script!(peek queue marker members pass leave release);
pub const KEEP: &str = script!(peek token queue marker pass ending parked keep release);
pub const KEEP_MEMBER: &str = script!(peek token queue marker members pass ending keep_member release);
pub const RELEASE_ANY: &str = script!(peek_any token queue marker members pass redisson delete parked any release);
