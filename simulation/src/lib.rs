//! A deterministic simulation of rlock: the shipped waiting, attempts, holdings, policy,
//! connections and scripts in a world whose time, network and servers come from one seed.
//!
//! 1. A [`scenario`] is drawn from a seed: clients, what they do, and faults.
//! 2. A [`world`] plays it. Each client is a [`process`]; `kernel` has the clock and the events,
//!    `network` the streams, and [`server`] executes the scripts.
//! 3. The [`witness`] says what is broken. [`shrink`] cuts the scenario down to a short story.
//!
//! The same seed gives the same story to the last event, on every machine.

#![allow(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a panic ends the world that is played, and is reported with its seed"
)]

pub mod client;
pub mod cluster;
pub mod command;
pub mod database;
pub mod deployment;
pub mod etcd;
pub mod fault;
pub mod kernel;
pub mod network;
pub mod node;
pub mod process;
pub mod random;
pub mod replication;
pub mod scenario;
pub mod server;
pub mod service;
pub mod shrink;
pub mod story;
pub mod tally;
pub mod tenure;
pub mod witness;
pub mod world;
pub mod zookeeper;
