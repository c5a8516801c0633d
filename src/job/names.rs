//! Names by which one rlock recognises another, its guard, and the processes under a nested run.

use std::ffi::CStr;

/// The process name of every rlock.
pub const RLOCK: &CStr = c"rlock";

/// The process name of every guard. An outer rlock must not take it for a command.
pub const GUARD: &CStr = c"rlock-guard";

/// The variable that marks the processes of a nested run's command: their `RLOCK_TOKEN` is the outer command's too.
pub const NESTED_MARK: &str = "RLOCK_NESTED";
