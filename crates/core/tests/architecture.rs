//! The tree is the architecture: rooms stand above each other, and no two files import each other, over however many
//! stops. A room's own file is made of the files in its folder: that it names them is no arrow. What is read are the
//! `use` lines, outside of tests.
#![cfg(test)]
#![expect(clippy::arithmetic_side_effects, reason = "braces are counted")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Files by their module path: `store::slots`.
type Files = BTreeMap<String, String>;

fn files(folder: &Path, module: &str, found: &mut Files) {
    for entry in fs::read_dir(folder).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let inside = [module, name].join("::").trim_start_matches("::").to_owned();
        if path.is_dir() {
            files(&path, &inside, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests" {
            let module = if matches!(name, "mod" | "lib") { module } else { &*inside };
            let source = fs::read_to_string(&path).unwrap();
            let code = source.split("#[cfg(test)]").next().unwrap();
            found.insert(module.to_owned(), code.to_owned());
        }
    }
}

/// Each path of a tree such as `a::{b, c::{self, d}}`.
fn paths(tree: &str) -> Vec<String> {
    let Some((start, rest)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let inner = rest.trim_end().trim_end_matches('}');
    let (mut depth, mut items) = (0, vec![String::new()]);
    for character in inner.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(String::new());
                continue;
            }
            _ => {}
        }
        items.last_mut().unwrap().push(character);
    }
    let items = items.iter().map(|item| item.trim()).filter(|item| !item.is_empty());
    items.flat_map(paths).map(|path| format!("{}{path}", start.trim())).collect()
}

/// What a file says about others: its imports, and the names that it passes on.
struct Uses {
    imports: Vec<String>,
    passed_on: BTreeMap<String, String>,
}

/// A path from the root of the crate, or nothing for one that leads out of it.
fn absolute(module: &str, path: &str, children: &BTreeSet<String>) -> Option<String> {
    let mut module: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    let mut parts = path.split("::").map(str::trim).peekable();
    match *parts.peek()? {
        "crate" => {
            parts.next();
            module.clear();
        }
        "self" => {
            parts.next();
        }
        "super" => {
            while parts.peek() == Some(&"super") {
                parts.next();
                module.pop();
            }
        }
        first => {
            let child = [&module[..], &[first]].concat().join("::");
            if !children.contains(&child) {
                return None;
            }
        }
    }
    let rest = parts.filter(|part| *part != "self").map(|part| part.split(" as ").next().unwrap());
    Some(module.into_iter().chain(rest).collect::<Vec<_>>().join("::"))
}

fn uses(module: &str, code: &str, all: &BTreeSet<String>) -> Uses {
    let mut uses = Uses { imports: Vec::new(), passed_on: BTreeMap::new() };
    let without_comments: Vec<_> =
        code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    for statement in without_comments.join("\n").split(';') {
        let statement = statement.trim().rsplit("\n\n").next().unwrap().trim();
        let statement = statement.rsplit(']').next().unwrap().trim();
        let (public, tree) = match statement.split_once("use ") {
            Some(("", tree)) => (false, tree),
            Some((visibility, tree))
                if visibility.starts_with("pub") && !visibility.contains('\n') =>
            {
                (true, tree)
            }
            _ => continue,
        };
        for path in paths(tree) {
            let Some(path) = absolute(module, &path, all) else { continue };
            if public {
                let name = path.rsplit("::").next().unwrap().to_owned();
                uses.passed_on.insert(name, path);
            } else {
                uses.imports.push(path);
            }
        }
    }
    uses
}

/// The file in which what a path names is.
fn home(path: &str, uses: &BTreeMap<String, Uses>) -> Option<String> {
    let mut path = path.to_owned();
    for _ in 0..10 {
        let mut module = path.clone();
        while !uses.contains_key(&module) {
            module = module.rsplit_once("::")?.0.to_owned();
        }
        let name =
            path.strip_prefix(&module)?.trim_start_matches("::").split("::").next()?.to_owned();
        match uses[&module].passed_on.get(&name) {
            Some(further) => path = further.clone(),
            None => return Some(module),
        }
    }
    None
}

fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let mut sources = Files::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut sources);
    let all: BTreeSet<_> = sources.keys().cloned().collect();
    let uses: BTreeMap<_, _> =
        sources.iter().map(|(module, code)| (module.clone(), uses(module, code, &all))).collect();
    assert!(uses.len() > 30, "the files have gone: {all:?}");
    let arrows = uses.iter().map(|(module, own)| {
        let to = own.imports.iter().filter_map(|path| home(path, &uses));
        let part = format!("{module}::");
        (module.clone(), to.filter(|to| to != module && !to.starts_with(&part)).collect())
    });
    arrows.collect()
}

/// A way from one back to itself.
fn circle(arrows: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn walk(
        at: &str,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
        arrows: &BTreeMap<String, BTreeSet<String>>,
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

#[test]
fn no_files_import_each_other() {
    assert_eq!(circle(&arrows()), None);
}

#[test]
fn rooms_stand_above_each_other() {
    let room = |module: &str| module.split("::").next().unwrap().to_owned();
    let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (from, to) in arrows() {
        let below = to.iter().map(|to| room(to)).filter(|to| *to != room(&from));
        rooms.entry(room(&from)).or_default().extend(below);
    }
    assert!(rooms["issuer"].contains("store") && rooms["bearer"].contains("jose"), "{rooms:?}");
    assert_eq!(circle(&rooms), None);
}

#[test]
fn a_circle_is_found() {
    let arrows = |pairs: &[(&str, &str)]| {
        let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in pairs {
            arrows.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            arrows.entry((*to).to_owned()).or_default();
        }
        arrows
    };
    assert_eq!(circle(&arrows(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    let found = circle(&arrows(&[("a", "b"), ("b", "c"), ("c", "b")]));
    assert_eq!(found, Some(vec!["b".to_owned(), "c".to_owned()]));
    assert_eq!(paths("a::{b, c::{self, d as e}}"), ["a::b", "a::c::self", "a::c::d as e"]);
}
