//! The public face of the core: the items that other crates can name. It stays as small as its
//! users allow, and each change to it shows in `public_face.txt`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{Fields, ImplItem, Item, ItemImpl};

use super::source::{Crate, add_idents, branches, core, idents, is_public, repository, rust_files};

/// Tells the test to write the list anew.
const UPDATE: &str = "UPDATE_PUBLIC_FACE";

/// The public items by their paths, each with the identifiers of its signature. A path ends in the
/// type and the method, or in the type and the field, where the item is one of these.
type Face = BTreeMap<String, BTreeSet<String>>;

struct Reader<'a> {
    core: &'a Crate,
    /// The inherent `impl` blocks of each type, by the path of its definition.
    methods: BTreeMap<String, Vec<&'a ItemImpl>>,
    face: Face,
}

impl Reader<'_> {
    fn add(&mut self, path: String, signature: impl ToTokens) {
        let mut named = BTreeSet::new();
        add_idents(signature.to_token_stream(), &mut named);
        self.face.insert(path, named);
    }

    fn add_module(&mut self, module: &str, public_path: &str) {
        let core = self.core;
        for item in &core.0[module].items {
            self.add_item(module, item, public_path);
        }
    }

    fn add_item(&mut self, module: &str, item: &Item, public_path: &str) {
        let core = self.core;
        let under = |name: &str| [public_path, name].join("::").trim_start_matches(':').to_owned();
        match item {
            Item::Mod(item) if is_public(&item.vis) => {
                let name = item.ident.to_string();
                let inside = [module, &name].join("::");
                self.add_module(inside.trim_start_matches(':'), &under(&name));
            }
            Item::Use(item) if is_public(&item.vis) => {
                for (name, _) in branches(&item.tree, &[]) {
                    let import = &core.0[module].imported.get(&name);
                    let Some(import) = import else { continue };
                    let Some((home, original)) = core.find(import) else { continue };
                    if original.is_empty() {
                        self.add_module(&home, &under(&name));
                    }
                    let named = core.0[&home].items.iter().filter(|item| declares(item, &original));
                    for item in named {
                        self.add_item(&home, item, public_path);
                    }
                }
            }
            Item::Const(item) if is_public(&item.vis) => {
                self.add(under(&item.ident.to_string()), &item.ty);
            }
            Item::Static(item) if is_public(&item.vis) => {
                self.add(under(&item.ident.to_string()), &item.ty);
            }
            Item::Fn(item) if is_public(&item.vis) => {
                self.add(under(&item.sig.ident.to_string()), &item.sig);
            }
            Item::Type(item) if is_public(&item.vis) => {
                self.add(under(&item.ident.to_string()), &item.ty);
            }
            Item::Trait(item) if is_public(&item.vis) => {
                self.add(under(&item.ident.to_string()), item);
            }
            Item::Enum(item) if is_public(&item.vis) => {
                let name = item.ident.to_string();
                self.add(under(&name), &item.variants);
                self.add_methods(module, &name, &under(&name));
            }
            Item::Struct(item) if is_public(&item.vis) => {
                let name = item.ident.to_string();
                self.add(under(&name), &item.generics);
                self.add_fields(&item.fields, &under(&name));
                self.add_methods(module, &name, &under(&name));
            }
            Item::Macro(item) => {
                for name in declared_by_macro(item.mac.tokens.clone()) {
                    self.add(under(&name), quote! {});
                    self.add_methods(module, &name, &under(&name));
                }
            }
            _ => {}
        }
    }

    fn add_fields(&mut self, fields: &Fields, public_path: &str) {
        for (index, field) in fields.iter().enumerate().filter(|(_, field)| is_public(&field.vis)) {
            match &field.ident {
                Some(ident) => self.add(format!("{public_path}.{ident}"), &field.ty),
                None => self.add(format!("{public_path}.{index}"), &field.ty),
            }
        }
    }

    fn add_methods(&mut self, module: &str, name: &str, public_path: &str) {
        let definition = [module, name].join("::").trim_start_matches(':').to_owned();
        let blocks = self.methods.get(&definition).cloned().unwrap_or_default();
        for item in blocks.into_iter().flat_map(|block| &block.items) {
            match item {
                ImplItem::Fn(method) if is_public(&method.vis) => {
                    self.add(format!("{public_path}::{}", method.sig.ident), &method.sig);
                }
                ImplItem::Const(constant) if is_public(&constant.vis) => {
                    self.add(format!("{public_path}::{}", constant.ident), &constant.ty);
                }
                _ => {}
            }
        }
    }
}

fn declares(item: &Item, name: &str) -> bool {
    match item {
        Item::Const(item) => item.ident == name,
        Item::Enum(item) => item.ident == name,
        Item::Fn(item) => item.sig.ident == name,
        Item::Static(item) => item.ident == name,
        Item::Struct(item) => item.ident == name,
        Item::Trait(item) => item.ident == name,
        Item::Type(item) => item.ident == name,
        Item::Macro(item) => declared_by_macro(item.mac.tokens.clone()).contains(name),
        _ => false,
    }
}

/// The types and functions that a macro is given with `pub` before them.
fn declared_by_macro(tokens: TokenStream) -> BTreeSet<String> {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let declared = tokens.windows(3).filter_map(|window| match window {
        [TokenTree::Ident(public), TokenTree::Ident(kind), TokenTree::Ident(name)]
            if public == "pub"
                && ["struct", "enum", "fn", "const"].iter().any(|one| kind == one) =>
        {
            Some(name.to_string())
        }
        _ => None,
    });
    declared.collect()
}

fn face() -> Face {
    let core = core();
    let mut methods: BTreeMap<String, Vec<&ItemImpl>> = BTreeMap::new();
    for (path, module) in &core.0 {
        for item in &module.items {
            let Item::Impl(block @ ItemImpl { trait_: None, self_ty, .. }) = item else { continue };
            let syn::Type::Path(named) = &**self_ty else { continue };
            let segments = named.path.segments.iter().map(|part| part.ident.to_string());
            let segments: Vec<_> = segments.collect();
            let resolved = core.resolve(path, &segments).and_then(|path| core.find(&path));
            let (home, name) = resolved.unwrap_or_else(|| (path.clone(), segments.join("::")));
            let definition = [home, name].join("::").trim_start_matches(':').to_owned();
            methods.entry(definition).or_default().push(block);
        }
    }
    let mut reader = Reader { core: &core, methods, face: Face::new() };
    reader.add_module("", "");
    reader.face
}

/// The last part of an item's path: a method of a type, a field, or the item itself.
fn own_name(path: &str) -> &str {
    path.rsplit([':', '.']).next().unwrap()
}

#[test]
fn the_list_of_public_items_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/architecture/public_face.txt");
    let list: String = face().keys().map(|path| format!("{path}\n")).collect();
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&file, &list).unwrap();
    }
    let listed = fs::read_to_string(&file).unwrap_or_default();
    let (now, then): (BTreeSet<_>, BTreeSet<_>) =
        (list.lines().collect(), listed.lines().collect());
    let added: Vec<_> = now.difference(&then).collect();
    let removed: Vec<_> = then.difference(&now).collect();
    assert!(
        added.is_empty() && removed.is_empty(),
        "`make public-face` writes the list anew. New: {added:#?} Gone: {removed:#?}"
    );
}

/// The other crates name an item, or a signature of such an item does. The comparison is by name
/// only: it misses an item without a user whose name another item has, too.
#[test]
fn every_public_item_has_a_user_outside_of_the_core() {
    let face = face();
    assert!(face.len() > 100, "items are missing: {face:#?}");
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().unwrap();
    let own = [own.join("src"), own.join("tests/architecture")];
    let mut named: BTreeSet<String> = rust_files(&repository())
        .into_iter()
        .filter(|file| !own.iter().any(|folder| file.starts_with(folder)))
        .flat_map(|file| idents(&file))
        .collect();
    let mut unused: Vec<_> = face.keys().collect();
    loop {
        let (used, rest): (Vec<_>, Vec<_>) =
            unused.into_iter().partition(|path| named.contains(own_name(path)));
        unused = rest;
        if used.is_empty() {
            break;
        }
        named.extend(used.into_iter().flat_map(|path| face[path].clone()));
    }
    unused.retain(|path| own_name(path).parse::<usize>().is_err());
    assert!(unused.is_empty(), "{} without a user: {unused:#?}", unused.len());
}
