//! The logs of Envoy, the filter and the guard: their lines, and the times in them.

pub(crate) mod input;
pub(crate) mod line;
pub(crate) mod when;
