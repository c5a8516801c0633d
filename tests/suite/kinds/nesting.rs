//! `rlock run` of a key that an outer run holds: which kinds run under which, and which are refused.

use super::job;
use crate::support::{Nodes, RLOCK};

#[test]
fn an_exclusive_lock_covers_every_kind_and_others_their_own() {
    let nodes = Nodes::start(1);
    let inside = |outer: &[&str], inner: &str| {
        job(&nodes, outer).sh(&format!("{RLOCK} run -k job -w 5s {inner} -- sh -c 'echo in \"$RLOCK_SLOT\"'; echo $?"))
    };
    inside(&[], "-x").code(0).printed(&["in ", "0"]);
    inside(&[], "-s").code(0).printed(&["in ", "0"]);
    inside(&[], "--slots 3").code(0).printed(&["in 1", "0"]);
    inside(&["-s"], "-s").code(0).printed(&["in ", "0"]);
    let same = inside(&["--slots", "3"], "--slots 3").code(0);
    assert!(same.stdout[0].starts_with("in ") && same.stdout[0] != "in " && same.stdout[1] == "0", "{:?}", same.stdout);
    for (outer, inner) in [
        (&["-s"][..], "-x"),
        (&["-s"], "--slots 3"),
        (&["--slots", "3"], "-x"),
        (&["--slots", "3"], "-s"),
        (&["--slots", "3"], "--slots 4"),
    ] {
        inside(outer, inner).code(0).printed(&["64"]).said(&["inside would wait for itself: take it outside"]);
    }
}

#[test]
fn a_reader_inside_a_reader_does_not_wait_for_a_writer_between_them() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let script = format!("echo ready; read line; {RLOCK} run -k job -n -s -- echo inner");
        let outer = job(&nodes, &["-s"]).env("RLOCK_RESTART_GUARD", "off").hold(&script);
        let writer = super::queued(&nodes, &[], "writer");
        outer.finish().code(0).silent().printed(&["ready", "inner"]);
        writer.finish().code(0).silent();
        super::nothing_is_left(&nodes);
    }
}
