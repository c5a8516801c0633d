//! From rlock to the command: a new process, prepared by a few system calls, and its image.
//!
//! The child shares rlock's memory until it execs, and rlock's thread stands still until then (`CLONE_VM | CLONE_VFORK`,
//! as `posix_spawn` does it): no page tables are copied and no page of either is written twice. `posix_spawn` itself
//! cannot set a parent-death signal. What runs in the child allocates nothing, and every signal is blocked until no
//! handler of rlock's is left that could run there. rlock's other threads (`report::stderr`'s writer, name look-ups) run
//! on meanwhile, and touch no memory that the child uses; its descriptors are its own.

use std::env;
use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_void};
use std::io;
use std::num::NonZero;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::ptr::{self, NonNull};

use nix::sched::{CloneFlags, clone};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use nix::sys::signal::SigSet;
use nix::unistd::Pid;

/// Where commands are looked for without a PATH (execvp(3)).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Size of the child's stack in bytes: far more than the few frames that run there need.
const STACK: NonZero<usize> = NonZero::new(256 * 1024).unwrap();

unsafe extern "C" {
    /// environ(7): pointers to strings, the last one null.
    static environ: *const *const c_char;
}

/// The child's stack. It is mapped, so that no page is there that is not touched, and a lack of memory is an error.
struct Stack(NonNull<c_void>);

impl Stack {
    fn new() -> io::Result<Self> {
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: it is new memory, and lies where nothing else does.
        let pages = unsafe { mmap_anonymous(None, STACK, access, MapFlags::MAP_PRIVATE | MapFlags::MAP_STACK) }?;
        Ok(Self(pages))
    }

    fn as_bytes(&mut self) -> &mut [u8] {
        // SAFETY: it stays mapped until `self` is dropped, is full of zeros at first, and nothing else refers to it.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr().cast(), STACK.get()) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and the references to it were borrowed from `self`.
        let _ = unsafe { munmap(self.0, STACK.get()) };
    }
}

/// What execve(2) wants and the child runs on, ready before the lock is won and before there is a child that must not
/// allocate.
pub struct Image {
    program: Program,
    environment: Vec<CString>,
    stack: Stack,
}

/// The program and its words.
struct Program {
    /// Where it may be, in the order of PATH.
    places: Vec<CString>,
    argv: CStringArray,
    /// `/bin/sh PLACE ARGS…`, for a script without `#!`, as execvp(3) runs it.
    script: CStringArray,
}

/// Strings, and the pointers to them that C wants, the last one null.
struct CStringArray {
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl From<Vec<CString>> for CStringArray {
    fn from(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect();
        Self { _strings: strings, pointers }
    }
}

fn c_strings(words: impl IntoIterator<Item = OsString>) -> io::Result<Vec<CString>> {
    words.into_iter().map(|word| c_string(&word)).collect()
}

/// The entries that rlock was given, as they are: std leaves out those without a name or `=`.
fn environment() -> Vec<CString> {
    // SAFETY: the C runtime has set it, and nothing in rlock changes a variable.
    let mut entry = unsafe { environ };
    let mut entries = Vec::new();
    // SAFETY: clearenv(3) leaves null in its place. Else it points to strings up to the one that is null.
    while !entry.is_null() && !unsafe { *entry }.is_null() {
        // SAFETY: as above; the next one is there since this is not the last.
        unsafe {
            entries.push(CStr::from_ptr(*entry).to_owned());
            entry = entry.add(1);
        }
    }
    entries
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

impl Image {
    /// `argv` with rlock's own environment, entries that are no variables included.
    pub fn new(argv: &[OsString]) -> io::Result<Self> {
        let (program, arguments) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let script = ["/bin/sh", "the place"].into_iter().map(OsString::from).chain(arguments.iter().cloned());
        let program = Program {
            places: places(program)?,
            argv: c_strings(argv.iter().cloned())?.into(),
            script: c_strings(script)?.into(),
        };
        Ok(Self { program, environment: environment(), stack: Stack::new()? })
    }

    /// Has it find `value` in the environment's variable `name`.
    pub fn set(&mut self, name: &str, value: &OsStr) -> io::Result<()> {
        let name = [name, "="].concat();
        self.environment.retain(|entry| !entry.as_bytes().starts_with(name.as_bytes()));
        self.environment.push(c_string(&[OsStr::new(&name), value].join(OsStr::new("")))?);
        Ok(())
    }

    /// Starts it in a new process, after `prepare` has run there. Returns once it has been exec'd, or could not be: then after
    /// `fail` has run there.
    ///
    /// # Safety
    /// Both run in rlock's own memory: they may make system calls, and must neither allocate nor panic.
    pub unsafe fn start(
        mut self,
        mut prepare: impl FnMut() -> io::Result<()>,
        mut fail: impl FnMut(),
    ) -> io::Result<Pid> {
        let environment = self.take_environment();
        let mut failure = 0;
        let failed = &raw mut failure;
        let mut before = SigSet::empty();
        nix::sys::signal::sigprocmask(
            nix::sys::signal::SigmaskHow::SIG_SETMASK,
            Some(&SigSet::all()),
            Some(&mut before),
        )?;
        let child = Box::new(|| {
            let error = match prepare() {
                Ok(()) => self.program.exec(&environment),
                Err(error) => error.raw_os_error().unwrap_or(libc::EINVAL),
            };
            fail();
            // SAFETY: rlock stands still, and reads this only when the child is gone.
            unsafe { *failed = error };
            1
        });
        // SAFETY: the child has a stack of its own, and with CLONE_VFORK nothing that it uses is freed or changed
        // before it has exec'd or ended.
        let started = unsafe {
            clone(child, self.stack.as_bytes(), CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK, Some(libc::SIGCHLD))
        };
        before.thread_set_mask()?;
        let pid = started?;
        if failure == 0 {
            return Ok(pid);
        }
        let _ = nix::sys::wait::waitpid(pid, None);
        Err(io::Error::from_raw_os_error(failure))
    }

    fn take_environment(&mut self) -> CStringArray {
        std::mem::take(&mut self.environment).into()
    }
}

impl Program {
    /// Becomes the program; what hindered it, if that fails. The rules are execvp(3)'s.
    fn exec(&mut self, environment: &CStringArray) -> i32 {
        let mut forbidden = false;
        for place in &self.places {
            match execve(place.as_ptr(), &self.argv, environment) {
                libc::ENOEXEC => {
                    self.script.pointers[1] = place.as_ptr();
                    return execve(self.script.pointers[0], &self.script, environment);
                }
                libc::EACCES => forbidden = true,
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
                other => return other,
            }
        }
        if forbidden { libc::EACCES } else { libc::ENOENT }
    }
}

fn execve(path: *const c_char, argv: &CStringArray, environment: &CStringArray) -> i32 {
    // SAFETY: all three point to strings, the latter two in arrays that end with null, and all outlive the call.
    unsafe { libc::execve(path, argv.pointers.as_ptr(), environment.pointers.as_ptr()) };
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)
}

fn places(program: &OsStr) -> io::Result<Vec<CString>> {
    if program.as_bytes().contains(&b'/') {
        return Ok(vec![c_string(program)?]);
    }
    let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    env::split_paths(&path)
        // An empty entry is the current directory, which `./` says to execve too.
        .map(|dir| if dir.as_os_str().is_empty() { Path::new(".").join(program) } else { dir.join(program) })
        .map(|place| CString::new(place.into_os_string().into_vec()).map_err(|_| io::ErrorKind::InvalidInput.into()))
        .collect()
}
