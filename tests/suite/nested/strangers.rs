//! Other users of the machine, and namespaces, between an outer rlock and a nested one.

use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, accept, bind,
    listen, sendmsg, socket,
};
use nix::sys::wait::waitpid;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{ForkResult, Pid, Uid, fork, pipe, setresuid};
use testkit::namespaces::unshare;
use uuid::Uuid;

use super::connection::listener_of;
use super::{local, nested};
use crate::support::{NOBODY, RLOCK, Rlock, Server, alive, eventually, rlock, skipped};

/// Whether the test may act as several users.
fn is_root() -> bool {
    let is_root = Uid::effective().is_root();
    if !is_root {
        skipped("only root can run as another user");
    }
    is_root
}

/// A process of `user` that listens as the rlock of `token` and welcomes everyone with a lease
/// without end. Killed on drop.
struct Impostor(Pid);

impl Impostor {
    fn start(token: Uuid, user: u32) -> Self {
        let address = UnixAddr::new_abstract(listener_of(token).as_bytes()).expect("a name");
        let (ready, begun) = pipe().expect("a pipe");
        // SAFETY: the child makes system calls, uses the allocator, and is killed.
        let child = match unsafe { fork() }.expect("a process") {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                let user = Uid::from_raw(user);
                setresuid(user, user, user).expect("another user");
                let ours = socket(
                    AddressFamily::Unix,
                    SockType::SeqPacket,
                    SockFlag::empty(),
                    None,
                )
                .expect("a socket");
                bind(ours.as_raw_fd(), &address).expect("a free name");
                listen(&ours, Backlog::MAXCONN).expect("a listener");
                nix::unistd::write(&begun, b"!").expect("a reader");
                loop {
                    let Ok(nested) = accept(ours.as_raw_fd()) else {
                        continue;
                    };
                    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("a clock");
                    let now = now.tv_sec().cast_unsigned() * 1_000_000_000
                        + now.tv_nsec().cast_unsigned();
                    let welcome = format!(
                        "{now} 30000000000 {never} {never} {token}:7",
                        never = 1_u64 << 62
                    );
                    let rights = [ControlMessage::ScmRights(&[begun.as_raw_fd()])];
                    let _ = sendmsg::<UnixAddr>(
                        nested,
                        &[IoSlice::new(welcome.as_bytes())],
                        &rights,
                        MsgFlags::empty(),
                        None,
                    );
                }
            }
        };
        nix::unistd::read(&ready, &mut [0]).expect("a listener");
        Self(child)
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
        let _ = waitpid(self.0, None);
    }
}

/// Returns `rlock run -k job` inside the command of a run that holds this token, as far as the
/// environment says.
fn inside(server: &Server, token: Uuid) -> Rlock {
    rlock("job")
        .on(server)
        .env("RLOCK_HELD", &format!("{token}:7"))
        .env("RLOCK_TOKEN", &token.to_string())
}

#[test]
fn a_listener_of_another_user_welcomes_no_nested_run_not_even_roots() {
    if !is_root() {
        return;
    }
    let server = Server::start();
    // The outer rlock's own listener is in another network namespace.
    let url = server.url();
    let Some(mut outer) = unshare(&["-n"]) else {
        return;
    };
    let outer = outer
        .args([
            RLOCK, "run", "-k", "job", "--node", &url, "--", "sleep", "60",
        ])
        .stdout(Stdio::null());
    let mut outer = outer.spawn().expect("unshare");
    eventually("it holds the lock", || {
        server.cli(&["EXISTS", "job"]) == "1"
    });
    let token = server
        .cli(&["GET", "job"])
        .split(' ')
        .next()
        .expect("a token")
        .parse()
        .expect("a uuid");
    let impostor = Impostor::start(token, NOBODY);
    let finished = inside(&server, token)
        .command(["echo", "ran"])
        .code(64)
        .printed(&[]);
    finished.said(&["that rlock cannot be reached from here"]);
    drop(impostor);
    // The welcome itself is one that a trusted user may give.
    let trusted = Impostor::start(token, 0);
    inside(&server, token)
        .command(["echo", "ran"])
        .code(0)
        .printed(&["ran"]);
    drop(trusted);
    kill(Pid::from_raw(outer.id().cast_signed()), Signal::SIGTERM).expect("a process");
    outer.wait().expect("a process");
}

#[test]
fn a_guard_in_name_of_another_user_keeps_no_lock() {
    if !is_root() {
        return;
    }
    let (_dir, node) = local();
    let others = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(others.path(), std::fs::Permissions::from_mode(0o755))
        .expect("its owner");
    let copy = others.path().join("rlock-guard");
    std::fs::copy("/bin/sleep", &copy).expect("a copy");
    let job = rlock("job").node(&node).stdin(Stdio::piped());
    let mut job = job
        .args(["-c", "echo token $RLOCK_TOKEN; read x; true"])
        .spawn();
    let token = job.wait_for("token");
    let mut stranger = std::process::Command::new(&copy);
    let mut stranger = stranger
        .arg("60")
        .uid(NOBODY)
        .env("RLOCK_HELD", format!("{token}:7"))
        .spawn()
        .expect("sleep");
    job.signal(Signal::SIGKILL);
    rlock("job")
        .node(&node)
        .args(["-w", "20"])
        .command(["true"])
        .code(0);
    assert!(alive(stranger.id().cast_signed()));
    stranger.kill().expect("a process");
    stranger.wait().expect("a process");
}

#[test]
fn an_outer_rlock_in_another_user_namespace_is_not_relied_on() {
    if unshare(&["-U"]).is_none() {
        return;
    }
    let server = Server::start();
    // A user without a number in the namespace looks like any other user without one.
    let script = format!("unshare -U {}; echo $?", nested("", "echo ran"));
    rlock("job")
        .on(&server)
        .sh(&script)
        .code(0)
        .printed(&["64"])
        .said(&["cannot be reached from here"]);
}

#[test]
fn an_outer_rlock_with_another_clock_is_not_relied_on() {
    for offset in ["-1000", "1000"] {
        if unshare(&["-T", "--boottime", offset]).is_none() {
            return;
        }
        let server = Server::start();
        let script = format!(
            "unshare -T --boottime {offset} {}; echo $?",
            nested("", "echo ran")
        );
        rlock("job")
            .on(&server)
            .sh(&script)
            .code(0)
            .printed(&["64"])
            .said(&["cannot be reached from here"]);
    }
}
