//! The tree is the architecture: files do not import each other in a circle, the rooms of core and
//! issuer stand above each other, and few crates know Envoy's SDK. The rules cover every crate, its
//! tests and its benchmarks.
#![cfg(test)]

#[path = "architecture/manual.rs"]
mod manual;
#[path = "architecture/names.rs"]
mod names;
#[path = "architecture/source.rs"]
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use source::{Arrows, Crate, core, repository, rust_files};

/// The room of the state, which has rooms of its own.
const STATE: &str = "state::";

/// The adapters of the stores.
const ADAPTERS: [&str; 2] = ["state::etcd", "state::local"];

/// The room that chooses among the adapters.
const ADAPTERS_ARE_CHOSEN_IN: &str = "state::storage";

/// A way from one module back to itself.
fn circle(arrows: &Arrows) -> Option<Vec<String>> {
    fn walk(
        at: &str,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
        arrows: &Arrows,
    ) -> Option<Vec<String>> {
        if let Some(start) = way.iter().position(|stop| stop == at) {
            return Some(way[start..].to_vec());
        }
        if !done.insert(at.to_owned()) {
            return None;
        }
        way.push(at.to_owned());
        let found = arrows.get(at)?.iter().find_map(|to| walk(to, way, done, arrows));
        way.pop();
        found
    }
    let mut done = BTreeSet::new();
    arrows.keys().find_map(|start| walk(start, &mut Vec::new(), &mut done, arrows))
}

/// The module right below the root of a crate.
fn room(module: &str) -> &str {
    module.split("::").next().unwrap()
}

/// The module right below the root, or right below `state`.
fn inner_room(module: &str) -> &str {
    if !module.starts_with(STATE) {
        return room(module);
    }
    let end = module.match_indices("::").nth(1).map_or(module.len(), |(end, _)| end);
    module.get(..end).unwrap()
}

/// The arrows between rooms.
fn rooms(arrows: &Arrows, room: fn(&str) -> &str) -> Arrows {
    let mut rooms = Arrows::new();
    for (from, to) in arrows {
        let others = to.iter().map(|to| room(to)).filter(|to| *to != room(from));
        rooms.entry(room(from).to_owned()).or_default().extend(others.map(str::to_owned));
    }
    rooms
}

#[test]
fn files_do_not_import_each_other_in_any_crate() {
    let crates = Crate::all();
    assert!(crates.len() > 15, "crates are missing: {:?}", crates.keys());
    let circles: BTreeMap<_, _> =
        crates.iter().filter_map(|(name, one)| Some((name, circle(&one.arrows())?))).collect();
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn rooms_of_the_core_stand_above_each_other() {
    let arrows = core().arrows();
    let outer = rooms(&arrows, room);
    assert!(outer["issuer"].contains("state") && outer["bearer"].contains("jose"), "{outer:?}");
    assert_eq!(circle(&outer), None);
    let inner = rooms(&arrows, inner_room);
    assert!(inner["state::storage"].contains("state::etcd"), "{inner:?}");
    assert_eq!(circle(&inner), None);
}

#[test]
fn only_storage_names_the_adapters() {
    let rooms = rooms(&core().arrows(), inner_room);
    let importers = |adapter: &str| -> Vec<_> {
        let importers = rooms.iter().filter(|(_, to)| to.contains(adapter)).map(|(from, _)| from);
        importers.filter(|from| !ADAPTERS.contains(&from.as_str())).cloned().collect()
    };
    for adapter in ADAPTERS {
        assert_eq!(importers(adapter), [ADAPTERS_ARE_CHOSEN_IN], "{adapter}");
    }
}

#[test]
fn only_the_plugins_name_the_sdk_of_envoy() {
    let plugins = ["src/", "crates/envoy", "crates/guard", "crates/test-plugin"];
    let plugins = plugins.map(|folder| repository().join(folder));
    // This file has the name in a text.
    let files = rust_files(&repository()).into_iter();
    let files = files.filter(|path| !path.ends_with(file!()));
    let (of_plugins, others): (Vec<_>, Vec<_>) =
        files.partition(|file| plugins.iter().any(|folder| file.starts_with(folder)));
    let names_sdk = |file: &PathBuf| {
        let text = fs::read_to_string(file).unwrap();
        text.lines()
            .any(|line| !line.trim_start().starts_with("//") && line.contains("proxy_wasm::"))
    };
    assert!(of_plugins.iter().any(names_sdk));
    let others: Vec<_> = others.iter().filter(|file| names_sdk(file)).collect();
    assert!(others.is_empty(), "{others:#?}");
}

#[test]
fn a_circle_is_found() {
    let arrows = |pairs: &[(&str, &str)]| {
        let mut arrows = Arrows::new();
        for (from, to) in pairs {
            arrows.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            arrows.entry((*to).to_owned()).or_default();
        }
        arrows
    };
    assert_eq!(circle(&arrows(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    let found = circle(&arrows(&[("a", "b"), ("b", "c"), ("c", "b")]));
    assert_eq!(found, Some(vec!["b".to_owned(), "c".to_owned()]));
}
