//! The simulation: rlock's library in a world whose time, network and servers are simulated from one seed.
//!
//! * [`server`]: a Redis server in memory, which executes the very scripts that rlock ships.

pub mod server;
