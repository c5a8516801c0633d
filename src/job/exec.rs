//! The command's program, arguments and environment, and the process that executes them.

use std::env;
use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use nix::unistd::{AccessFlags, Pid, access};

/// The search path if PATH is unset (execvp(3)).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

unsafe extern "C" {
    /// environ(7): pointers to strings, the last one null.
    static mut environ: *mut *mut c_char;
}

/// The arguments of execve(2).
pub struct Image {
    argv: Vec<OsString>,
    environment: Vec<CString>,
}

impl Image {
    /// Prepares `argv` with rlock's own environment.
    pub fn new(argv: &[OsString]) -> Self {
        Self { argv: argv.to_vec(), environment: environment() }
    }

    /// Sets the environment variable `name`.
    pub fn set(&mut self, name: &str, value: &OsStr) -> io::Result<()> {
        self.unset(name);
        let entry = [OsStr::new(name), value].join(OsStr::new("="));
        self.environment.push(CString::new(entry.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?);
        Ok(())
    }

    /// Removes the environment variable `name`.
    pub fn unset(&mut self, name: &str) {
        let name = [name, "="].concat();
        self.environment.retain(|entry| !entry.as_bytes().starts_with(name.as_bytes()));
    }

    /// Runs `prepare` in a new process and executes the program there. Returns after the exec, or with the error.
    ///
    /// # Safety
    /// `prepare` runs in a fork of a process with threads: it may make system calls, and must neither allocate nor panic.
    pub unsafe fn start(
        &self,
        prepare: impl Fn() -> io::Result<()> + Clone + Send + Sync + 'static,
    ) -> io::Result<Pid> {
        let entries = self.environment.iter().map(|entry| entry.as_ptr().cast_mut());
        let mut pointers: Vec<*mut c_char> = entries.chain([ptr::null_mut()]).collect();
        let mut execute = |mut command: Command| -> io::Result<Pid> {
            let (prepare, entries) = (prepare.clone(), AtomicPtr::new(pointers.as_mut_ptr()));
            // SAFETY: the caller promises it for `prepare`, and a pointer is stored.
            unsafe {
                command.pre_exec(move || {
                    prepare()?;
                    environ = entries.load(Relaxed);
                    Ok(())
                })
            };
            Ok(Pid::from_raw(command.spawn()?.id().cast_signed()))
        };
        let (program, arguments) = self.argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments);
        match execute(command) {
            // A script without `#!`. glibc's execvp(3) has a shell run it, and musl's does not.
            Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => {
                let script = candidates(program).into_iter().find(|path| access(path, AccessFlags::X_OK).is_ok());
                let mut shell = Command::new("/bin/sh");
                shell.arg(script.ok_or(error)?).args(arguments);
                execute(shell)
            }
            started => started,
        }
    }
}

/// Returns the inherited entries unchanged. [`Command`] drops those that have no name or no `=`.
fn environment() -> Vec<CString> {
    // SAFETY: the C runtime sets it, and nothing in rlock changes a variable.
    let mut entry = unsafe { environ };
    let mut entries = Vec::new();
    // SAFETY: it is null after clearenv(3), else an array of strings that ends with null.
    while !entry.is_null() && !unsafe { *entry }.is_null() {
        // SAFETY: as above; there is a next one, since this is not null.
        unsafe {
            entries.push(CStr::from_ptr(*entry).to_owned());
            entry = entry.add(1);
        }
    }
    entries
}

/// Returns the first file that exists of those that an exec of `program` tries.
pub fn existing(program: &OsStr) -> Option<PathBuf> {
    candidates(program).into_iter().find(|path| path.exists())
}

/// Returns the files that an exec of `program` tries, in the order of PATH.
fn candidates(program: &OsStr) -> Vec<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return vec![program.into()];
    }
    let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    // An empty entry is the current directory.
    env::split_paths(&path).map(|dir| Path::new(".").join(dir).join(program)).collect()
}
