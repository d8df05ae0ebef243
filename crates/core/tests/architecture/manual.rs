//! docs/operations.md lists the metrics as crates/core/src/metrics.rs documents them.

use std::{env, fs};

use syn::{Attribute, Expr, ExprLit, Item, Lit, Meta};

use super::source::repository;

const PAGE: &str = "docs/operations.md";
const BEGIN: &str = "<!-- `make docs` writes this list from crates/core/src/metrics.rs. -->\n\n";
const END: &str = "\n<!-- The end of the list. -->";

/// One item of the list.
fn item(metric: &str, text: &str) -> String {
    let mut parts = metric.split('.');
    let name = parts.next().unwrap();
    let parts: Vec<_> = parts.collect();
    let labels = parts.chunks(2).map(|label| match label {
        [name, value] if !value.is_empty() && !value.starts_with('{') => {
            format!("{name}=\"{value}\"")
        }
        [name, ..] => (*name).to_owned(),
        [] => String::new(),
    });
    let labels = labels.collect::<Vec<_>>().join(", ");
    let labels = if labels.is_empty() { labels } else { format!(" `{{{labels}}}`") };
    wrapped(&format!("- `{name}`{labels}: {text}"))
}

/// Wraps a list item at 100 columns.
fn wrapped(item: &str) -> String {
    let mut lines = vec![String::new()];
    for word in item.split(' ') {
        let line = lines.last_mut().unwrap();
        match [line, " ", word].concat().len() {
            _ if line.is_empty() => line.push_str(word),
            ..=100 => line.extend([" ", word]),
            _ => lines.push(format!("  {word}")),
        }
    }
    lines.join("\n") + "\n"
}

/// The first paragraph of a doc comment.
fn documentation(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => text(&pair.value),
        _ => None,
    });
    let paragraph: Vec<_> = lines.take_while(|line| !line.trim().is_empty()).collect();
    paragraph.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

fn text(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// The first text literal in some code.
fn first_literal(tokens: proc_macro2::TokenStream) -> Option<String> {
    tokens.into_iter().find_map(|token| match token {
        proc_macro2::TokenTree::Literal(literal) => {
            Some(syn::parse_str::<syn::LitStr>(&literal.to_string()).ok()?.value())
        }
        proc_macro2::TokenTree::Group(group) => first_literal(group.stream()),
        _ => None,
    })
}

fn metrics() -> String {
    let source = repository().join("crates/core/src/metrics.rs");
    let items = syn::parse_file(&fs::read_to_string(source).unwrap()).unwrap().items;
    let rows = items.into_iter().filter_map(|one| {
        let (attributes, code) = match one {
            Item::Const(one) => (one.attrs, quote::ToTokens::into_token_stream(one.expr)),
            Item::Fn(one) => (one.attrs, quote::ToTokens::into_token_stream(one.block)),
            _ => return None,
        };
        let name = first_literal(code).filter(|name| name.starts_with("impersonation_"))?;
        Some(item(&name, &documentation(&attributes)))
    });
    rows.collect()
}

#[test]
fn the_manual_lists_the_metrics_as_the_code_documents_them() {
    let path = repository().join(PAGE);
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (list, after) = rest.split_once(END).unwrap();
    let wanted = metrics();
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, [before, BEGIN, &wanted, END, after].concat()).unwrap();
        return;
    }
    assert_eq!(list, wanted, "run `make docs`");
}
