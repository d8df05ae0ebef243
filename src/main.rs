//! The native companion of the filter.

fn main() {}
