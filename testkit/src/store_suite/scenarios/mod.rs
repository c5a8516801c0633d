//! The scenarios. Each has a lock for itself, which is free.

pub mod breaking;
pub mod exclusion;
pub mod kinds;
pub mod leases;
pub mod records;
pub mod servers;
pub mod waiting;
