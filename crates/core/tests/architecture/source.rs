//! The modules of each crate, found by their `mod` declarations, and the arrows between them. Code
//! that is compiled for tests only is left out of a library.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Item, ItemMod, UseTree};

/// The modules that each module imports.
pub(crate) type Arrows = BTreeMap<String, BTreeSet<String>>;

/// A path, segment by segment.
type Segments = Vec<String>;

struct Module {
    items: Vec<Item>,
    /// The names that a `use` brings into the module, with their paths from the root of the crate.
    imported: BTreeMap<String, String>,
}

/// The modules of one crate by their paths, such as `store::slots`. The root is the empty path.
pub(crate) struct Crate(BTreeMap<String, Module>);

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The rooms of the core and of the issuer. The issuer calls the core's rooms by their names there.
pub(crate) fn core() -> Crate {
    let [core, issuer] = ["core", "issuer"]
        .map(|name| Crate::read(&repository().join("crates").join(name).join("src/lib.rs")));
    // The root is the core's.
    Crate(issuer.0.into_iter().chain(core.0).collect())
}

/// Every Rust file below a folder.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        match path.is_dir() {
            true if name == "target" || name == "node_modules" || name.starts_with('.') => vec![],
            true => rust_files(&path),
            false if name.ends_with(".rs") => vec![path],
            false => vec![],
        }
    });
    files.collect()
}

fn add_idents(tokens: TokenStream, idents: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => drop(idents.insert(ident.to_string())),
            TokenTree::Group(group) => add_idents(group.stream(), idents),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

impl Crate {
    /// Every crate of the workspace by the file of its root: libraries, programs, tests and
    /// benchmarks.
    pub(crate) fn all() -> BTreeMap<PathBuf, Self> {
        let crates = fs::read_dir(repository().join("crates")).unwrap();
        let crates = crates.map(|entry| entry.unwrap().path());
        let packages = crates.chain([repository()]);
        let roots = packages.flat_map(|package| {
            let inside = |folder: &str| {
                let entries = fs::read_dir(package.join(folder)).into_iter().flatten();
                let paths = entries.map(|entry| entry.unwrap().path());
                paths.flat_map(|path| [path.join("main.rs"), path]).collect()
            };
            let sources = vec![package.join("src/lib.rs"), package.join("src/main.rs")];
            [sources, inside("tests"), inside("benches")].concat()
        });
        roots
            .filter(|root| root.is_file() && root.extension().is_some_and(|end| end == "rs"))
            .map(|root| (root.clone(), Self::read(&root)))
            .collect()
    }

    pub(crate) fn read(root: &Path) -> Self {
        let mut files = BTreeMap::new();
        read_file(root, root.parent().unwrap(), String::new(), &mut files);
        let known: BTreeSet<_> = files.keys().cloned().collect();
        let modules = files.into_iter().map(|(path, items)| {
            let uses = items.iter().filter_map(|item| match item {
                Item::Use(import) => Some(branches(&import.tree, &[])),
                _ => None,
            });
            let imported = uses.flatten().filter_map(|(name, segments)| {
                Some((name, absolute(&path, &segments, |child| known.contains(child))?))
            });
            let imported = imported.collect();
            (path, Module { items, imported })
        });
        Self(modules.collect())
    }

    /// Every module by its path, with its code. The code of an inline module belongs to it alone.
    pub(crate) fn modules(&self) -> impl Iterator<Item = (&String, TokenStream)> {
        self.0.iter().map(|(path, module)| {
            let items = module.items.iter().filter(|item| !matches!(item, Item::Mod(_)));
            (path, items.map(ToTokens::to_token_stream).collect())
        })
    }

    /// The module that a path from the root leads to, through `use` declarations, and the rest of
    /// the path inside of that module.
    fn find(&self, path: &str) -> Option<(String, String)> {
        let mut path = path.to_owned();
        for _ in 0..10 {
            let mut module = path.as_str();
            while !self.0.contains_key(module) {
                module = module.rsplit_once("::").map_or("", |(start, _)| start);
            }
            let rest = path.strip_prefix(module).unwrap().trim_start_matches("::").to_owned();
            let (name, further) = rest.split_once("::").unwrap_or((&rest, ""));
            match self.0[module].imported.get(name) {
                Some(import) if *import != path => {
                    path = [import, further].join("::").trim_end_matches(':').to_owned();
                }
                _ => return Some((module.to_owned(), rest)),
            }
        }
        None
    }

    /// The path from the root of what a module calls `segments`.
    fn resolve(&self, module: &str, segments: &[String]) -> Option<String> {
        let imported = &self.0[module].imported;
        let (first, rest) = segments.split_first()?;
        match imported.get(first) {
            Some(import) => Some([std::slice::from_ref(import), rest].concat().join("::")),
            None => absolute(module, segments, |child| self.0.contains_key(child)),
        }
    }

    /// A module that names its own submodules imports nothing: it is made of them.
    pub(crate) fn arrows(&self) -> Arrows {
        let arrows = self.0.iter().map(|(path, module)| {
            let mut named = Vec::new();
            for item in &module.items {
                add_paths(item.to_token_stream(), &[], &mut named);
            }
            // One segment alone is no import: `pub(crate)` has one.
            let named = named.iter().filter(|segments| segments.len() > 1);
            let imports = named.filter_map(|segments| self.resolve(path, segments));
            let to = imports.filter_map(|import| Some(self.find(&import)?.0));
            let own = |to: &String| to == path || is_below(to, path);
            (path.clone(), to.filter(|to| !own(to)).collect())
        });
        arrows.collect()
    }
}

fn is_below(path: &str, ancestor: &str) -> bool {
    ancestor.is_empty() || path.starts_with(&format!("{ancestor}::"))
}

/// Reads a module's file and those of its submodules, which are in `folder`.
fn read_file(file: &Path, folder: &Path, path: String, files: &mut BTreeMap<String, Vec<Item>>) {
    let source = fs::read_to_string(file).unwrap();
    let items = syn::parse_file(&source).unwrap_or_else(|error| panic!("{file:?}: {error}")).items;
    read_items(items, file.parent().unwrap(), folder, path, files);
}

fn read_items(
    items: Vec<Item>,
    beside: &Path,
    folder: &Path,
    path: String,
    files: &mut BTreeMap<String, Vec<Item>>,
) {
    let items: Vec<_> = items.into_iter().filter(|item| !is_for_tests(attributes(item))).collect();
    for item in &items {
        let Item::Mod(ItemMod { ident, content, attrs, .. }) = item else { continue };
        let inside = [&path, &ident.to_string()].map(String::as_str).join("::");
        let inside = inside.trim_start_matches("::").to_owned();
        let own_folder = folder.join(ident.to_string());
        if let Some((_, items)) = content {
            read_items(items.clone(), beside, &own_folder, inside, files);
        } else if let Some(named) = attrs.iter().find_map(path_attribute) {
            let file = beside.join(named);
            read_file(&file, file.parent().unwrap(), inside, files);
        } else if own_folder.join("mod.rs").exists() {
            read_file(&own_folder.join("mod.rs"), &own_folder, inside, files);
        } else {
            read_file(&own_folder.with_extension("rs"), &own_folder, inside, files);
        }
    }
    files.insert(path, items);
}

fn path_attribute(attribute: &Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else {
        return None;
    };
    pair.path.is_ident("path").then(|| text.value())
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|one| one.path().is_ident("cfg")).any(|cfg| {
        let mut idents = BTreeSet::new();
        add_idents(cfg.to_token_stream(), &mut idents);
        idents.contains("test") && !idents.contains("not")
    })
}

/// The names that a `use` declaration brings in, each with its path. A glob brings in no name that
/// is known here.
fn branches(tree: &UseTree, before: &[String]) -> Vec<(String, Segments)> {
    let with = |ident: &syn::Ident| [before, &[ident.to_string()]].concat();
    match tree {
        UseTree::Path(path) => branches(&path.tree, &with(&path.ident)),
        UseTree::Name(name) if name.ident == "self" => {
            before.last().map(|last| (last.clone(), before.to_vec())).into_iter().collect()
        }
        UseTree::Name(name) => vec![(name.ident.to_string(), with(&name.ident))],
        UseTree::Rename(rename) => vec![(rename.rename.to_string(), with(&rename.ident))],
        UseTree::Glob(_) => vec![],
        UseTree::Group(group) => {
            group.items.iter().flat_map(|item| branches(item, before)).collect()
        }
    }
}

/// Every path in `tokens`, those in macros and in the groups of `use` declarations among them.
fn add_paths(tokens: TokenStream, before: &[String], found: &mut Vec<Segments>) {
    let mut path = before.to_vec();
    let mut colons: u8 = if before.is_empty() { 0 } else { 2 };
    for token in tokens {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ':' => {
                colons = colons.saturating_add(1);
                continue;
            }
            TokenTree::Ident(ident) if colons == 2 && !path.is_empty() => {
                path.push(ident.to_string());
            }
            TokenTree::Ident(ident) => {
                found.push(std::mem::replace(&mut path, vec![ident.to_string()]));
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && colons == 2 => {
                add_paths(group.stream(), &path, found);
                path.clear();
            }
            // In the group of a `use`, each branch begins where the group does.
            TokenTree::Punct(punct) if punct.as_char() == ',' && !before.is_empty() => {
                found.push(std::mem::replace(&mut path, before.to_vec()));
                colons = 2;
                continue;
            }
            TokenTree::Group(group) => add_paths(group.stream(), &[], found),
            TokenTree::Punct(_) | TokenTree::Literal(_) => found.push(std::mem::take(&mut path)),
        }
        colons = 0;
    }
    found.push(path);
}

/// A path from the root of the crate, or nothing for one that leads out of it.
fn absolute(module: &str, segments: &[String], is_module: impl Fn(&str) -> bool) -> Option<String> {
    let mut at: Vec<_> = module.split("::").filter(|part| !part.is_empty()).collect();
    let mut rest = segments.iter().map(String::as_str).peekable();
    match rest.peek().copied()? {
        "crate" => {
            rest.next();
            at.clear();
        }
        "self" => drop(rest.next()),
        "super" => {
            while rest.next_if_eq(&"super").is_some() {
                at.pop();
            }
        }
        first if is_module(&[&at[..], &[first]].concat().join("::")) => {}
        _ => return None,
    }
    Some(at.into_iter().chain(rest.filter(|part| *part != "self")).collect::<Vec<_>>().join("::"))
}

#[test]
fn a_path_is_found_in_code_in_macros_and_in_groups() {
    let code = "use a::{b, c::{self, d as e}}; fn f() { json!([crate::g::h()]); super::i::J }";
    let mut found = Vec::new();
    add_paths(code.parse().unwrap(), &[], &mut found);
    let found: Vec<_> = found.iter().map(|path| path.join("::")).collect();
    for path in ["a::b", "a::c::self", "a::c::d", "crate::g::h", "super::i::J"] {
        assert!(found.iter().any(|one| one == path), "{path} is not among {found:?}");
    }
}
