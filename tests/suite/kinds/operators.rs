//! Members as operators see them and act on them: inspect, break, acquire, check, renew, release.

use serde_json::Value;

use super::{LEASES, SHARED, SLOTS, all_end, hold, job, nothing_is_left, verb};
use crate::support::{Nodes, eventually};

fn inspected(nodes: &Nodes) -> Value {
    let shown = verb(nodes, &["inspect", "job", "--json"])
        .finish()
        .code(0)
        .stdout
        .remove(0);
    serde_json::from_str::<Value>(&shown).expect("JSON")[0].take()
}

#[track_caller]
fn shows(nodes: &Nodes, words: &[&str]) {
    let table = verb(nodes, &["inspect", "job"])
        .finish()
        .code(0)
        .stdout
        .join("\n");
    assert!(words.iter().all(|word| table.contains(word)), "{table}");
}

#[test]
fn inspect_shows_each_member() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let readers = [hold(&nodes, SHARED), hold(&nodes, SHARED)];
        let seen = inspected(&nodes);
        assert_eq!(
            (&seen["mode"], &seen["state"], seen["slots"].is_null()),
            (&"shared".into(), &"held".into(), true)
        );
        let holders = seen["holders"].as_array().expect("holders");
        assert_eq!(holders.len(), 2);
        assert!(
            holders
                .iter()
                .all(|holder| holder["votes"] == count && holder["fence"].is_u64()),
            "{seen}"
        );
        shows(&nodes, &["shared 2", "tester@"]);
        all_end(readers, 0);
        let slots = [hold(&nodes, SLOTS), hold(&nodes, SLOTS)];
        let seen = inspected(&nodes);
        assert_eq!(
            (&seen["mode"], &seen["slots"]),
            (&"slots".into(), &2.into())
        );
        let numbers: Vec<u64> = (0..2)
            .filter_map(|index| seen["holders"][index]["slot"].as_u64())
            .collect();
        assert_eq!(numbers, [1, 2]);
        shows(&nodes, &["slots 2/2", "slot 1", "slot 2"]);
        all_end(slots, 0);
        verb(&nodes, &["inspect", "job"]).finish().code(1);
    }
}

#[test]
fn the_line_for_a_busy_lock_names_one_member_and_counts_the_others() {
    let nodes = Nodes::start(1);
    let readers = [
        hold(&nodes, SHARED),
        hold(&nodes, SHARED),
        hold(&nodes, SHARED),
    ];
    job(&nodes, &["-n"])
        .sh("true")
        .code(75)
        .said(&["busy: held shared by tester@", " and 2 more"]);
    all_end(readers, 0);
}

#[test]
fn break_ends_all_members_that_it_shows() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let readers = [(), ()]
            .map(|()| job(&nodes, &["-s", "--ttl", "6s"]).hold("echo ready; exec sleep 60"));
        verb(&nodes, &["break", "job", "-y"])
            .finish()
            .code(0)
            .mentions(&["held shared by"]);
        all_end(readers, 79);
        nothing_is_left(&nodes);
    }
}

#[test]
fn break_of_one_member_leaves_the_others() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let mut slots = [(), ()].map(|()| {
            job(&nodes, &["--slots", "2", "--ttl", "6s"])
                .hold("echo ready; echo slot $RLOCK_SLOT; exec sleep 60")
        });
        let names = slots.each_mut().map(|slot| slot.wait_for("slot"));
        let [first, second] = slots;
        let (broken, other) = if names[0] == "1" {
            (first, second)
        } else {
            (second, first)
        };
        verb(&nodes, &["break", "job", "-y", "-q", "--slot", "1"])
            .finish()
            .code(0);
        broken.finish().code(79);
        verb(&nodes, &["break", "job", "-y", "--slot", "1"])
            .finish()
            .code(1)
            .said(&["held, and not in slot 1"]);
        let mut other = other;
        assert!(other.is_running());
        let token = inspected(&nodes)["holders"][0]["token"]
            .as_str()
            .expect("a token")
            .to_owned();
        verb(
            &nodes,
            &["break", "job", "-y", "-q", "--now", "--token", &token],
        )
        .finish()
        .code(0);
        other.finish().code(79);
        nothing_is_left(&nodes);
    }
}

#[test]
fn steps_work_for_a_member_as_for_an_exclusive_holder() {
    for count in [1, 3] {
        for options in [SHARED, SLOTS] {
            let nodes = Nodes::start(count);
            let take = || {
                let words = [
                    "acquire",
                    "-k",
                    "job",
                    "--format",
                    "json",
                    "--restart-guard",
                    "off",
                ];
                let shown = verb(&nodes, &words)
                    .args(options)
                    .finish()
                    .code(0)
                    .stdout
                    .remove(0);
                let shown: Value = serde_json::from_str(&shown).expect("JSON");
                let text = |name: &str| shown[name].to_string().trim_matches('"').to_owned();
                (text("token"), text("fence"), text("slot"))
            };
            let (one, other) = (take(), take());
            assert_eq!(one.2 == "null", options == SHARED, "{one:?}");
            for (token, fence, _) in [&one, &other] {
                let asked = |word: &str| verb(&nodes, &[word, "-k", "job", "--token", token]);
                asked("check")
                    .args(["--fence", fence])
                    .finish()
                    .code(0)
                    .silent();
                asked("renew")
                    .args(["--ttl", "20s"])
                    .finish()
                    .code(0)
                    .silent();
                asked("check")
                    .args(["--for", "15s", "--fence", fence])
                    .finish()
                    .code(0)
                    .silent();
            }
            verb(&nodes, &["release", "-k", "job", "--token", &one.0])
                .finish()
                .code(0)
                .silent();
            verb(&nodes, &["check", "-k", "job", "--token", &one.0])
                .finish()
                .code(1);
            verb(&nodes, &["check", "-k", "job", "--token", &other.0])
                .finish()
                .code(0);
            verb(&nodes, &["release", "-k", "job", "--token", &other.0])
                .finish()
                .code(0)
                .silent();
            nothing_is_left(&nodes);
        }
    }
}

#[test]
fn a_broken_member_on_several_nodes_is_not_healed_back() {
    let nodes = Nodes::start(3);
    let reader = job(&nodes, &["-s", "--ttl", "2s"]).hold("echo ready; exec sleep 60");
    let other = hold(&nodes, SHARED);
    let token = reader_token(&nodes);
    verb(
        &nodes,
        &["break", "job", "-y", "-q", "--now", "--token", &token],
    )
    .finish()
    .code(0);
    reader.finish().code(79);
    for node in nodes.iter() {
        eventually("one member is left", || node.cli(&["ZCARD", LEASES]) == "1");
    }
    other.finish().code(0).silent();
}

/// Returns the token of the member whose lease ends first.
fn reader_token(nodes: &Nodes) -> String {
    nodes[0].cli(&["ZRANGE", LEASES, "0", "0"])
}
