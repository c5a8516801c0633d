//! What the kernel tells of processes: who started whom, and what memory they take.

/// Those that it has started and that have not ended.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    threads.flat_map(|thread| of(thread).split_whitespace().flat_map(str::parse).collect::<Vec<_>>()).collect()
}

/// Its name, or nothing if it has ended.
pub(crate) fn name(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// What it and all below it take, in bytes, except those that are named `except`: each page divided by the number of
/// processes that have it (PSS). One that has ended takes nothing.
pub(crate) fn memory(pid: u32, except: &str) -> u64 {
    let own = if name(pid) == except { 0 } else { proportional(pid).unwrap_or_default() };
    own + children(pid).into_iter().map(|child| memory(child, except)).sum::<u64>()
}

fn proportional(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(value.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}
