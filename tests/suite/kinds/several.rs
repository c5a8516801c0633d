//! Several shared locks, and a slot of each of several locks, in one run.

use super::{all_end, job};
use crate::support::{Nodes, RLOCK, Rlock, rlock_words};

/// Returns `rlock COMMAND -k b -k a`, to be completed.
fn both(nodes: &Nodes, command: &str, options: &[&str]) -> Rlock {
    rlock_words([command, "-k", "b", "-k", "a"])
        .on_all(nodes)
        .args(options)
}

#[test]
fn readers_of_several_locks_hold_each_of_them_together() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let readers =
            [(); 2].map(|()| both(&nodes, "run", &["-s"]).hold("echo ready; read line; true"));
        for key in ["a", "b"] {
            rlock_words(["run", "-k", key, "-n"])
                .on_all(&nodes)
                .sh("echo ran")
                .code(75)
                .printed(&[]);
            rlock_words(["run", "-k", key, "-n", "-s"])
                .on_all(&nodes)
                .sh("true")
                .code(0)
                .silent();
        }
        all_end(readers, 0);
        both(&nodes, "run", &["-n"]).sh("true").code(0).silent();
    }
}

#[test]
fn a_run_of_several_locks_has_a_slot_of_each_in_the_order_of_their_names() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let options = ["--slots", "2"];
        let mut holders = [(); 2].map(|()| {
            both(&nodes, "run", &options)
                .hold("echo ready; echo slots $RLOCK_SLOT; read line; true")
        });
        both(&nodes, "run", &["-n", "--slots", "2"])
            .sh("true")
            .code(75);
        let slots = holders.each_mut().map(|holder| holder.wait_for("slots"));
        let of = |holder: usize| {
            slots[holder]
                .split(',')
                .map(|slot| slot.parse().expect("a slot"))
                .collect::<Vec<u16>>()
        };
        let pairs: Vec<(u16, u16)> = of(0).into_iter().zip(of(1)).collect();
        assert!(
            pairs.len() == 2 && pairs.iter().all(|(one, other)| one + other == 3),
            "{slots:?}"
        );
        all_end(holders, 0);
    }
}

#[test]
fn a_nested_run_of_one_of_several_locks_has_the_outer_slot_of_that_lock() {
    let nodes = Nodes::start(1);
    let script =
        format!("echo $RLOCK_SLOT; {RLOCK} run -k b -n --slots 3 -- sh -c 'echo $RLOCK_SLOT'");
    let shown = both(&nodes, "run", &["--slots", "3"])
        .sh(&script)
        .code(0)
        .silent()
        .stdout;
    assert_eq!(
        shown[0].split(',').nth(1),
        Some(shown[1].as_str()),
        "{shown:?}"
    );
    let script = format!("{RLOCK} run -k a -k b -n -x -- true; echo $?");
    both(&nodes, "run", &["-s"])
        .sh(&script)
        .code(0)
        .printed(&["64"]);
    let script = format!("{RLOCK} run -k job -k b -n -s -- true; echo $?");
    job(&nodes, &["-s"]).sh(&script).code(0).printed(&["64"]);
}
