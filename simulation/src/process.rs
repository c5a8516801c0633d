//! A simulated process: a tokio runtime of its own, as every rlock has, with one thread and without
//! the kernel.
//!
//! * It runs until it waits for something, in no time.
//! * To stop it is not to run it: its alarms and packets find it later, as after SIGCONT.
//! * To kill it is to drop it: its tasks end where they wait, and its sockets close behind what was
//!   written.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::{self, Runtime};

thread_local! {
    /// Whether the runtime that runs has nothing to do.
    static IS_IDLE: Cell<bool> = const { Cell::new(false) };
    /// Wakes the future that watches for that.
    static WATCHER: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

/// A process.
pub struct Process {
    /// Dropped before the runtime on which it runs.
    main: Pin<Box<dyn Future<Output = ()>>>,
    runtime: Runtime,
    woken: Arc<Woken>,
    /// The state of the thread's random numbers, from which the library draws.
    draws: u64,
    /// Whether SIGSTOP stopped it.
    pub is_stopped: bool,
}

/// Notes that the main future is to be polled.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
        WATCHER.with_borrow(|watcher| watcher.iter().for_each(Waker::wake_by_ref));
    }
}

impl Process {
    /// A process that executes `main`. `draws` seeds its random numbers.
    pub fn new(main: impl Future<Output = ()> + 'static, draws: u64) -> Self {
        let runtime = runtime::Builder::new_current_thread()
            .on_thread_park(|| {
                IS_IDLE.set(true);
                WATCHER.with_borrow(|watcher| watcher.iter().for_each(Waker::wake_by_ref));
            })
            .build()
            .expect("a runtime without any driver");
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        Self {
            main: Box::pin(main),
            runtime,
            woken,
            draws,
            is_stopped: false,
        }
    }

    /// Runs until everything in it waits. Returns whether it has ended.
    pub fn run(&mut self) -> bool {
        fastrand::seed(self.draws);
        IS_IDLE.set(false);
        let (main, woken) = (&mut self.main, &self.woken);
        let waker = Waker::from(Arc::clone(woken));
        let has_ended = self.runtime.block_on(std::future::poll_fn(|cx| {
            WATCHER.set(Some(cx.waker().clone()));
            if woken.0.swap(false, Relaxed) {
                // What it does may wake tasks: the runtime says anew that it is idle.
                IS_IDLE.set(false);
                if main
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_ready()
                {
                    return Poll::Ready(true);
                }
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if IS_IDLE.get() {
                Poll::Ready(false)
            } else {
                Poll::Pending
            }
        }));
        WATCHER.set(None);
        self.draws = fastrand::get_seed();
        has_ended
    }

    /// Number of its tasks that have not ended.
    pub fn tasks(&self) -> usize {
        self.runtime.metrics().num_alive_tasks()
    }
}
