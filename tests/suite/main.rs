//! The suite: the binary as its users meet it, against real servers that the tests start
//! themselves.
//!
//! Tests wait on events (a line that a command printed, a key that appeared) and never on a guess
//! of time. Each wait has a limit that only a failure reaches.

#![allow(clippy::expect_used, clippy::unwrap_used)]

extern crate rlock_cli as rlock;

mod support;

mod access;
mod addresses;
mod breaking;
mod busy;
mod certificates;
mod child;
mod cluster;
mod completions;
mod configuration;
mod contest;
mod doctor;
mod documentation;
mod etcd;
mod failover;
mod fences;
mod fuzzed;
mod generated;
mod guarded;
mod handover;
mod hostile;
mod independence;
mod inspect;
mod interop;
mod keys;
mod killed;
mod kinds;
mod last;
mod line;
mod local;
mod logs;
mod lost;
mod metrics;
mod mutants;
mod mysql;
mod names;
mod namespaces;
mod nested;
mod network;
mod once;
mod packaged;
mod places;
mod postgres;
mod progress;
mod prose;
mod queue;
mod redisson;
mod redlock;
mod remains;
mod replicas;
mod restarts;
mod rotation;
mod sentinel;
mod servers;
mod shared_places;
mod signals;
mod simulated_etcd;
mod simulated_row;
mod simulated_server;
mod simulated_zookeeper;
mod simulation;
mod singleton;
mod sql;
mod steps;
mod store_suite;
mod strangers;
mod supersede;
mod terminal;
mod trials;
mod unread;
mod unscripted;
mod upkeep;
mod usage;
mod zookeeper;
