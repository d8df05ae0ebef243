//! The companion's readers of files, included by path because a binary exports nothing.
#![expect(dead_code, reason = "the companion uses more of it")]

#[path = "../../cli/src/check/tree.rs"]
mod tree;
#[path = "../../cli/src/check/yaml.rs"]
mod yaml;

/// Reads a file in both ways.
pub(crate) fn read(text: &str) {
    let _ = yaml::read(text);
    let _ = yaml::read_all(text);
}
