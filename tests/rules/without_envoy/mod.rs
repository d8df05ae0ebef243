//! Rules about what a test cannot make Envoy do: an answer of etcd that gets lost at a chosen
//! moment, or another worker that acts between two steps.

mod approvals;
