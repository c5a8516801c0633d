//! The program's memory: the allocator, copies, and pages that are mapped in advance. With musl's copies an uncontended run of the static
//! binary takes 12 % longer, with its allocator 17 %.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlmalloc::Dlmalloc;

#[cfg(all(target_arch = "x86_64", target_env = "musl"))]
std::arch::global_asm!(include_str!("memory/copy.s"), "copiers memcpy, memmove", options(att_syntax));

static HEAP: Heap = Heap { inner: Mutex::new(Dlmalloc::new()), forking: UnsafeCell::new(None) };

/// Size in bytes of the range that the heap is given at first.
const RESERVED_HEAP: usize = 192 << 10;

/// Sizes in bytes of what an uncontended run uses of the heap and of the stack, of which the kernel has reserved 128 KiB.
const USED_HEAP: usize = 124 << 10;
const USED_STACK: usize = 112 << 10;

const PAGE: usize = 4096;

struct Heap {
    inner: Mutex<Dlmalloc>,
    /// The lock of the thread that forks.
    forking: UnsafeCell<Option<MutexGuard<'static, Dlmalloc>>>,
}

// SAFETY: only the thread that has the lock touches `forking`.
unsafe impl Sync for Heap {}

/// dlmalloc behind a lock of the standard library's. Its own, a `pthread_mutex_t`, takes 4 % of an uncontended run more.
#[derive(Debug)]
pub struct Allocator;

impl Allocator {
    fn heap() -> MutexGuard<'static, Dlmalloc> {
        HEAP.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a child allocate that is forked while another thread does: a guard is replaced at any time. To be called once.
    pub fn allow_forks() {
        extern "C" fn lock() {
            let heap = Allocator::heap();
            // SAFETY: this thread has the lock.
            unsafe { *HEAP.forking.get() = Some(heap) };
        }
        extern "C" fn unlock() {
            // SAFETY: this thread has the lock, or is the copy of the one that has it.
            drop(unsafe { (*HEAP.forking.get()).take() });
        }
        // SAFETY: the handlers touch nothing but the lock.
        unsafe { libc::pthread_atfork(Some(lock), Some(unlock), Some(unlock)) };
    }
}

// SAFETY: dlmalloc keeps the contract, and one thread at a time enters it.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: dlmalloc asks for what the caller has promised; so it does below.
        unsafe { Self::heap().malloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { Self::heap().free(place, layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { Self::heap().calloc(layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { Self::heap().realloc(place, layout.size(), layout.align(), size) }
    }
}

/// Reserves the heap of a whole run as one range, of which [`prefault`] finds the rest. To be called before the first allocation. If
/// there is less memory, a smaller run may still fit.
pub fn reserve() {
    let mut heap = Vec::<u8>::new();
    let _ = heap.try_reserve_exact(RESERVED_HEAP);
    drop(std::hint::black_box(heap));
}

/// Has the kernel map the memory that each run touches. A page fault for each of these pages takes 3 % of an uncontended run. Linux
/// before 5.14 refuses, and nothing is lost.
pub fn prefault() {
    let mut heap = Vec::<u8>::new();
    if heap.try_reserve_exact(USED_HEAP).is_err() {
        return;
    }
    let stack = (&raw const heap).cast::<u8>();
    for (end, size) in [(heap.as_ptr().wrapping_add(USED_HEAP), USED_HEAP), (stack, USED_STACK)] {
        let begin = (end as usize - size).next_multiple_of(PAGE);
        let whole = (end as usize - begin) / PAGE * PAGE;
        // SAFETY: it changes the contents of no page, and both ranges are this process's own.
        unsafe { libc::madvise(begin as *mut libc::c_void, whole, libc::MADV_POPULATE_WRITE) };
    }
}

/// Gives the kernel back what calls have used of the stack below the caller's frame: a seventh of a waiter's memory, and a wait can be
/// long.
#[inline(never)]
pub fn give_back_stack() {
    // Another thread's stack is smaller than what is given back here.
    if nix::unistd::gettid() != nix::unistd::getpid() {
        return;
    }
    let here = 0_u8;
    // Two pages are more than the frames of this call and of madvise(2).
    let end = ((&raw const here as usize) / PAGE - 2) * PAGE;
    // SAFETY: nothing lives below the frame of the innermost call. Where the stack ends earlier, the kernel has nothing to take.
    unsafe { libc::madvise((end - USED_STACK) as *mut libc::c_void, USED_STACK, libc::MADV_DONTNEED) };
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use super::*;

    #[cfg(target_arch = "x86_64")]
    mod copies {
        use std::ffi::c_void;

        std::arch::global_asm!(
            include_str!("memory/copy.s"),
            "copiers tested_memcpy, tested_memmove",
            options(att_syntax)
        );

        type Copier = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

        unsafe extern "C" {
            fn tested_memcpy(to: *mut c_void, from: *const c_void, count: usize) -> *mut c_void;
            fn tested_memmove(to: *mut c_void, from: *const c_void, count: usize) -> *mut c_void;
        }

        /// Has `copier` copy `count` of 400 bytes, of which no two neighbours are equal.
        fn copies(copier: Copier, count: usize, from: usize, to: usize) {
            let mut bytes: Vec<u8> = (0..=u8::MAX).cycle().take(400).collect();
            let mut expected = bytes.clone();
            expected.copy_within(from..from + count, to);
            assert!(from + count <= bytes.len() && to + count <= bytes.len());
            let place = bytes.as_mut_ptr();
            // SAFETY: both ranges are in `bytes`, and apart where `copier` is memcpy.
            let returned = unsafe { copier(place.add(to).cast(), place.add(from).cast(), count) };
            assert_eq!(returned.cast(), place.wrapping_add(to));
            assert_eq!(bytes, expected, "{count} bytes from {from} to {to}");
        }

        #[test]
        fn a_copy_of_any_size_touches_its_bytes_alone() {
            for count in 0..130 {
                for (from, to) in [(0, 200), (3, 201), (200, 5)] {
                    copies(tested_memcpy, count, from, to);
                }
            }
        }

        #[test]
        fn a_move_copies_onto_itself() {
            for count in [0, 1, 2, 7, 8, 9, 16, 33, 100] {
                for (from, to) in (90..110).flat_map(|from| (0..210).map(move |to| (from, to))) {
                    copies(tested_memmove, count, from, to);
                }
            }
        }
    }

    /// Allocates, grows and frees through [`Allocator`], and returns whether the memory kept what was written to it.
    fn works(seed: u8) -> bool {
        let layout = Layout::from_size_align(48, 16).unwrap();
        // SAFETY: each place is used in its size, and freed once.
        unsafe {
            let place = Allocator.alloc(layout);
            place.write_bytes(seed, 48);
            let zeros = Allocator.alloc_zeroed(layout);
            let place = Allocator.realloc(place, layout, 5000);
            let kept = std::slice::from_raw_parts(place, 48).iter().all(|byte| *byte == seed);
            let zeroed = std::slice::from_raw_parts(zeros, 48).iter().all(|byte| *byte == 0);
            Allocator.dealloc(place, Layout::from_size_align(5000, 16).unwrap());
            Allocator.dealloc(zeros, layout);
            kept && zeroed
        }
    }

    /// Uses 16 KiB of the stack, and returns their lowest address.
    #[inline(never)]
    fn use_stack() -> usize {
        let used = std::hint::black_box([1_u8; 16 << 10]);
        used.as_ptr() as usize
    }

    /// Whether the kernel has a page of memory at `address`.
    fn is_mapped(address: usize) -> bool {
        let mut resident = 0;
        // SAFETY: it writes one byte, and only looks at the page.
        let found = unsafe { libc::mincore((address / PAGE * PAGE) as *mut libc::c_void, 1, &raw mut resident) };
        found == 0 && resident & 1 == 1
    }

    #[test]
    fn the_stack_is_given_back_below_the_caller_and_nothing_of_the_callers() {
        // The one thread of a forked process is its first.
        // SAFETY: the child makes system calls, and ends.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let kept = std::hint::black_box([7_u8; 2 * PAGE]);
                let used = use_stack();
                let was_used = is_mapped(used);
                give_back_stack();
                let is_right = was_used && !is_mapped(used) && kept.iter().all(|byte| *byte == 7);
                // SAFETY: ends the process, which is a copy of the tests'.
                unsafe { libc::_exit(i32::from(!is_right)) };
            }
            ForkResult::Parent { child } => assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0))),
        }
    }

    /// Whether this process runs one test alone.
    const ALONE: &str = "TEST_ALONE";

    #[test]
    fn a_child_that_is_forked_while_others_allocate_allocates_too() {
        if std::env::var_os(ALONE).is_none() {
            // The children would have copies of the files of the tests beside it, and so their locks.
            let name = "memory::tests::a_child_that_is_forked_while_others_allocate_allocates_too";
            let mut alone = Command::new(std::env::current_exe().unwrap());
            let output = alone.args(["--exact", name]).env(ALONE, "1").output().unwrap();
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
            return;
        }
        Allocator::allow_forks();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 1..=2 {
                let over = &over;
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        assert!(works(seed));
                    }
                });
            }
            let mut children = (0..300).map(|_| {
                // SAFETY: the child uses `Allocator` and system calls alone.
                match unsafe { fork() } {
                    // SAFETY: ends the child, in any case by a signal.
                    Ok(ForkResult::Child) => unsafe {
                        libc::alarm(30);
                        libc::_exit(i32::from(!works(9)))
                    },
                    Ok(ForkResult::Parent { child }) => waitpid(child, None) == Ok(WaitStatus::Exited(child, 0)),
                    Err(_) => false,
                }
            });
            let all_worked = children.all(|worked| worked);
            over.store(true, Ordering::Relaxed);
            assert!(all_worked);
        });
    }
}
