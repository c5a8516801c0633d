//! `rlock run` of a key that an outer run holds: which kinds run under which, and which are
//! refused.

use std::process::Stdio;

use super::{SHARED, SLOTS, job};
use crate::support::{Nodes, RLOCK, Rlock, STEADY, Server, alive, rlock};

/// Checks which kinds run inside which. `outer` makes a run of the lock `job` with these options.
pub(crate) fn each_kind_covers_its_own(outer: impl Fn(&[&str]) -> Rlock) {
    let inside = |options: &[&str], inner: &str| {
        outer(options).sh(&format!(
            "{RLOCK} run -k job -w 5s {inner} -- sh -c 'echo in \"$RLOCK_SLOT\"'; echo $?"
        ))
    };
    inside(&[], "-x").code(0).printed(&["in ", "0"]);
    inside(&[], "-s").code(0).printed(&["in ", "0"]);
    inside(&[], "--slots 3").code(0).printed(&["in 1", "0"]);
    inside(&["-s"], "-s").code(0).printed(&["in ", "0"]);
    let same = inside(&["--slots", "3"], "--slots 3").code(0);
    assert!(
        same.stdout[0].starts_with("in ") && same.stdout[0] != "in " && same.stdout[1] == "0",
        "{:?}",
        same.stdout
    );
    for (options, inner) in [
        (&["-s"][..], "-x"),
        (&["-s"], "--slots 3"),
        (&["--slots", "3"], "-x"),
        (&["--slots", "3"], "-s"),
        (&["--slots", "3"], "--slots 4"),
    ] {
        inside(options, inner)
            .code(0)
            .printed(&["64"])
            .said(&["inside would wait for itself: take it outside"]);
    }
}

#[test]
fn an_exclusive_lock_covers_every_kind_and_others_their_own() {
    let nodes = Nodes::start(1);
    each_kind_covers_its_own(|options| job(&nodes, options));
}

#[test]
fn a_reader_inside_a_reader_does_not_wait_for_a_writer_between_them() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let script = format!("echo ready; read line; {RLOCK} run -k job -n -s -- echo inner");
        let outer = job(&nodes, &["-s"])
            .env("RLOCK_RESTART_GUARD", "off")
            .hold(&script);
        let writer = super::queued(&nodes, &[], "writer");
        outer.finish().code(0).silent().printed(&["ready", "inner"]);
        writer.finish().code(0).silent();
        super::nothing_is_left(&nodes);
    }
}

/// Options of an outer run and of a run that it covers.
const COVERED: [(&[&str], &str); 5] = [
    (&[], "-x"),
    (&[], "-s"),
    (&[], "--slots 2"),
    (SHARED, "-s"),
    (SLOTS, "--slots 2"),
];

#[test]
fn a_node_that_stalls_as_the_nested_run_starts_does_not_let_it_wait_for_itself() {
    let nodes = Nodes::start(1);
    let pause = format!(
        "redis-cli -s {} client pause 1600 all",
        nodes[0].socket().display()
    );
    for (outer, inner) in COVERED {
        let script = format!("{pause}; {RLOCK} run -k job {inner} -- echo inner");
        job(&nodes, outer)
            .sh(&script)
            .code(0)
            .silent()
            .printed(&["OK", "inner"]);
    }
    job(&nodes, SHARED)
        .sh(&format!(
            "{pause}; {RLOCK} run -k job -- echo inner; echo $?"
        ))
        .code(0)
        .printed(&["OK", "64"]);
}

#[test]
fn several_nodes_of_which_one_hangs_tell_which_kinds_run_inside() {
    let nodes = Nodes::start(3);
    nodes[2].freeze();
    let inside = |outer: &[&str], inner: &str| {
        let script = format!("{RLOCK} run -k job {inner} -- echo inner; echo $?");
        job(&nodes, outer)
            .env("RLOCK_RESTART_GUARD", "off")
            .sh(&script)
            .code(0)
    };
    for (outer, inner) in COVERED {
        inside(outer, inner).printed(&["inner", "0"]);
    }
    for (outer, inner) in [(SHARED, "-x"), (SLOTS, "-s"), (SLOTS, "--slots 3")] {
        inside(outer, inner)
            .printed(&["64"])
            .mentions(&["inside would wait for itself: take it outside"]);
    }
    nodes[2].thaw();
    nodes.become_clean();
}

#[test]
fn a_nested_command_in_the_background_does_not_outlive_a_member() {
    let server = Server::start();
    let work = "trap \"\" TERM; echo work $$; for i in $(seq 600); do sleep 0.1; done";
    for (kind, inner) in [(SHARED, "-s"), (SLOTS, "--slots 2")] {
        let script = format!(
            "setsid {RLOCK} run -k job {inner} -- sh -c '{work}' & echo ready; read x; exit 5"
        );
        let job = rlock("job")
            .on(&server)
            .args(STEADY)
            .args(["-v"])
            .args(kind)
            .stdin(Stdio::piped());
        let mut job = job.args(["-c", &script]).spawn();
        let work = job.wait_for_pid("work");
        drop(job.stdin.take());
        job.wait_until_told("keeping the lock until the nested rlock runs have ended");
        assert!(alive(work));
        server.cli(&["SET", "job", "another's"]);
        let finished = job.finish();
        assert!(!alive(work), "it outlived the lock: {}", finished.stderr);
        server.cli(&["DEL", "job"]);
    }
}

#[test]
fn what_is_held_is_carried_down_for_all_locks_and_all_levels() {
    let nodes = Nodes::start(1);
    let run =
        |keys: &str, options: &str, words: &str| format!("{RLOCK} run {keys} {options} -- {words}");
    // a shared, then b, then each again under the one that holds it. No run holds both.
    for (keys, innermost) in [("-k job", "-s"), ("-k b", "-x")] {
        let script = run(
            "-k b",
            "",
            &run(keys, &format!("-n {innermost}"), "echo inner"),
        );
        job(&nodes, SHARED)
            .sh(&script)
            .code(0)
            .silent()
            .printed(&["inner"]);
    }
    // An upgrade is refused two levels down too, alone and among others.
    for keys in ["-k job", "-k b -k job"] {
        let script = format!(
            "{RLOCK} run -k b -c '{}; echo $?'",
            run(keys, "", "echo inner")
        );
        job(&nodes, SHARED)
            .sh(&script)
            .code(0)
            .printed(&["64"])
            .mentions(&["inside would wait for itself"]);
    }
    let script = format!(
        "{RLOCK} run -k b -c '{}; echo $?'",
        run("-k b -k job", "-s", "echo inner")
    );
    job(&nodes, SHARED)
        .sh(&script)
        .code(0)
        .printed(&["64"])
        .mentions(&["one of these locks"]);
    assert_eq!(nodes[0].cli(&["EXISTS", "job", "b"]), "0");
}
