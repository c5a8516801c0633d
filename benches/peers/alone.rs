//! A lock without contention: the time from the start of the program to its end on one server, on
//! this machine, on five servers and on five of which one hangs; and the memory of a holder.

use anyhow::Result;

use crate::figures::{Row, Section, Unit};
use crate::peer::{ON_SERVERS, ON_THIS_MACHINE, Peer, World};
use testkit::Server;
use testkit::measure::batch::{Batch, Place};
use testkit::measure::contender::{Contender, Times, measure};
use testkit::measure::locker::Locker;
use testkit::measure::machine::megabytes;
use testkit::processes::memory_of_tree;

const WARM_UP: usize = 5;
const ROUNDS: usize = 50;

pub(crate) const START: &str = "Start to end, one server";
pub(crate) const START_LOCAL: &str = "Start to end, this machine";
pub(crate) const FIVE: &str = "Start to end, five servers";
pub(crate) const HUNG: &str = "Start to end, five servers of which one hangs";
pub(crate) const MEMORY: &str = "Memory of one that holds";

/// Measures `true` under a lock, on one server and on this machine.
pub(crate) fn start(world: &World) -> Result<Vec<Section>> {
    let lockers = |all: &[Peer]| {
        world
            .present(all)
            .map(|peer| peer.locker(world))
            .collect::<Result<Vec<_>>>()
    };
    let (on_servers, on_this_machine) = (lockers(&ON_SERVERS)?, lockers(&ON_THIS_MACHINE)?);
    let run = |lockers: &[Box<dyn Locker>]| -> Vec<Contender> {
        lockers
            .iter()
            .map(|locker| Contender::running(locker.name(), &locker.command(), &["true"]))
            .collect()
    };
    let mut contenders = run(&on_servers);
    contenders.extend(
        world
            .present(&ON_SERVERS)
            .filter_map(Peer::idle)
            .map(|(name, argv)| Contender::new(name, argv)),
    );
    let split = contenders.len();
    contenders.extend(run(&on_this_machine));

    let times = measure(&contenders, WARM_UP, ROUNDS, |_, _| Ok(()))?;
    let about = format!(
        "Wall time of `true` under a lock without contention, from spawn to exit, {ROUNDS} times by turns after \
         {WARM_UP} to warm up."
    );
    Ok(vec![
        Section::of_times(START, about.clone(), &times[..split], Peer::Rlock.name()),
        Section::of_times(START_LOCAL, about, &times[split..], Peer::RlockLocal.name()),
    ])
}

/// Measures the same on five servers, and on five of which another one hangs each round.
pub(crate) fn five(world: &World) -> Result<Vec<Section>> {
    let present: Vec<Peer> = world
        .present(&[Peer::Floor, Peer::Rlock, Peer::NodeRedlock])
        .collect();
    // floor.c would wait for a server that hangs.
    let patient: Vec<Peer> = present
        .iter()
        .copied()
        .filter(|peer| *peer != Peer::Floor)
        .collect();
    // Each contender has its own key: a release need not have reached every server when the next
    // run begins.
    let contender = |peer: &Peer, key: &str| {
        let argv = peer.on(world, &world.servers, &format!("{key}-{}", peer.name()));
        Contender::new(peer.name(), [argv, vec!["true".to_owned()]].concat())
    };
    let healthy = present.iter().map(|peer| contender(peer, "five"));
    let contenders: Vec<Contender> = healthy
        .chain(patient.iter().map(|peer| contender(peer, "hung")))
        .collect();
    let mut servers = world
        .servers
        .iter()
        .map(Server::connect)
        .collect::<Vec<_>>();
    let times = measure(&contenders, WARM_UP, ROUNDS, |round, turn| {
        world.servers.iter().for_each(Server::wake);
        // The key of the run before, on the server that hung, would block for 30 s.
        servers
            .iter_mut()
            .try_for_each(|server| redis::cmd("FLUSHALL").exec(server))?;
        if turn >= present.len() {
            world.servers[round % world.servers.len()].freeze();
        }
        Ok(())
    });
    world.servers.iter().for_each(Server::wake);
    let times = times?;
    let about = |what: &str| {
        format!(
            "As above, on five servers{what}; {ROUNDS} times by turns after {WARM_UP} to warm up."
        )
    };
    let section = |title, what, times: &[Times]| {
        Section::of_times(title, about(what), times, Peer::Rlock.name())
    };
    Ok(vec![
        section(FIVE, "", &times[..present.len()]),
        section(
            HUNG,
            " of which one is stopped (SIGSTOP), another one each round",
            &times[present.len()..],
        ),
    ])
}

/// Measures all processes of a holder, without its command.
pub(crate) fn memory(world: &World) -> Result<Vec<Section>> {
    let place = Place {
        dir: &world.dir,
        witness: &world.witness,
    };
    let mut rows = Vec::new();
    for peer in world.present(&[&ON_SERVERS[..], &ON_THIS_MACHINE[..]].concat()) {
        if peer == Peer::EtcdctlInMemory {
            continue;
        }
        let mut locker = peer.locker(world)?;
        let batch = Batch::form(&mut *locker, place, 0, "0")?;
        let taken = megabytes(memory_of_tree(batch.holder(), "witness"));
        batch.run()?;
        rows.push(Row {
            name: peer.name(),
            figures: vec![Some(taken)],
        });
    }
    let about =
        "All processes of one that holds a lock, without its command: each page divided by the number of processes \
                 that have it (PSS). chpst becomes the command."
            .to_owned();
    let columns = vec![("memory", Unit::Megabytes)];
    Ok(vec![
        Section {
            title: MEMORY,
            about,
            columns,
            rows,
        }
        .against(Peer::Rlock.name()),
    ])
}
