//! The adapter for one Envoy: it keeps everything in Envoy's shared data, which all workers share.
//!
//! Every call answers at once. The data outlives changed configurations, crashed VMs and other
//! modules of the same `vm_id`, and is lost with the process.

mod bucket;
mod census;
mod impersonations;
mod slots;
mod table;
mod waiting;

pub use census::Census;
pub(crate) use census::TURN;
pub(crate) use impersonations::LocalList;
pub use slots::SlotTable;
pub(crate) use table::{LocalTable, Number};
