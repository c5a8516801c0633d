//! The scripts that a server executes. Each is several files of `scripts/`, one after the other, as build.rs stripped them.

macro_rules! script {
    ($($name:literal),+) => {
        concat!($(include_str!(concat!(env!("OUT_DIR"), "/", $name))),+)
    };
}

pub const ACQUIRE: &str =
    script!("peek.lua", "queue.lua", "turn.lua", "marker.lua", "crowd.lua", "enter.lua", "acquire.lua");
pub const ACQUIRE_NEWEST: &str = script!(
    "peek.lua",
    "queue.lua",
    "turn.lua",
    "marker.lua",
    "crowd.lua",
    "enter.lua",
    "newest.lua",
    "superseded.lua",
    "acquire.lua"
);
pub const JOIN: &str = script!(
    "peek.lua",
    "queue.lua",
    "turn.lua",
    "marker.lua",
    "crowd.lua",
    "members.lua",
    "admit.lua",
    "enter.lua",
    "join.lua"
);
pub const JOIN_NEWEST: &str = script!(
    "peek.lua",
    "queue.lua",
    "turn.lua",
    "marker.lua",
    "crowd.lua",
    "members.lua",
    "admit.lua",
    "enter.lua",
    "newest.lua",
    "superseded.lua",
    "join.lua"
);
pub const ANNOUNCE: &str = script!("peek.lua", "queue.lua", "newest.lua", "announce.lua");
pub const RENEW: &str =
    script!("peek.lua", "token.lua", "counter.lua", "marker.lua", "members.lua", "admit.lua", "renew.lua");
pub const HEAL: &str =
    script!("peek.lua", "token.lua", "counter.lua", "marker.lua", "members.lua", "admit.lua", "heal.lua");
pub const TOMBSTONE: &str = script!("peek.lua", "token.lua", "marker.lua", "members.lua", "admit.lua", "tombstone.lua");
pub const FORCE_DELETE: &str = script!(
    "peek.lua",
    "token.lua",
    "counter.lua",
    "queue.lua",
    "marker.lua",
    "members.lua",
    "pass.lua",
    "any.lua",
    "force_delete.lua"
);
pub const UNMARK: &str = script!("peek.lua", "token.lua", "unmark.lua");
pub const DELETE_FOREIGN: &str = script!("peek.lua", "queue.lua", "delete_foreign.lua");
pub const OBSERVE: &str = script!("peek.lua", "marker.lua", "members.lua", "admit.lua", "observe.lua");
pub const RELEASE: &str =
    script!("peek.lua", "token.lua", "queue.lua", "marker.lua", "pass.lua", "exclusive.lua", "release.lua");
pub const LEAVE: &str =
    script!("peek.lua", "queue.lua", "marker.lua", "members.lua", "pass.lua", "leave.lua", "release.lua");
pub const KEEP: &str =
    script!("peek.lua", "token.lua", "queue.lua", "marker.lua", "pass.lua", "ending.lua", "keep.lua", "release.lua");
pub const KEEP_MEMBER: &str = script!(
    "peek.lua",
    "token.lua",
    "queue.lua",
    "marker.lua",
    "members.lua",
    "pass.lua",
    "ending.lua",
    "keep_member.lua",
    "release.lua"
);
pub const RELEASE_ANY: &str =
    script!("peek.lua", "token.lua", "queue.lua", "marker.lua", "members.lua", "pass.lua", "any.lua", "release.lua");
