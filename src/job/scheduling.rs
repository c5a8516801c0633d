//! Who goes first where processors are few: what others wait for, then what only we wait for.

/// From now on nobody is interrupted for us, as `SCHED_BATCH` has it (sched(7)); we still get our share. Whoever was started
/// with a policy of its own keeps it.
pub fn use_batch_policy() {
    let priority = libc::sched_param { sched_priority: 0 };
    // The system calls themselves: musl's functions of these names do nothing.
    // SAFETY: it asks for a number.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    if policy == libc::c_long::from(libc::SCHED_OTHER) {
        // SAFETY: the kernel reads one number, which outlives the call.
        let _ = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_BATCH, &raw const priority) };
    }
}
