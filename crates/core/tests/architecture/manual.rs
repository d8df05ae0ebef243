//! docs/operations.md lists the metrics as crates/core/src/metrics.rs documents them, and the
//! reasons that the code can give.

use std::collections::BTreeSet;
use std::fs;

use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Item, Lit, Meta};
use testkit::generated::{between, hold, wrapped};

use super::source::{core, repository};

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
    hold(PAGE, |page| between(page, BEGIN, &metrics(), END));
}

/// Collects the reasons that code gives: texts in the place of a constructor's `reason`, and those
/// that a function `reason` returns.
#[derive(Default)]
struct Reasons(BTreeSet<String>);

impl Visit<'_> for Reasons {
    fn visit_expr_call(&mut self, call: &syn::ExprCall) {
        if let Expr::Path(function) = &*call.func {
            let mut names = function.path.segments.iter().rev().map(|one| one.ident.to_string());
            let name = names.next().unwrap();
            let place = match (names.next().as_deref(), name.as_str()) {
                (Some("Refusal" | "Self"), "new") => Some(2),
                (
                    Some("Refusal" | "Self"),
                    "invalid_request"
                    | "invalid_target"
                    | "invalid_scope"
                    | "invalid_client"
                    | "access_denied"
                    | "temporarily_unavailable"
                    | "not_found"
                    | "unmet_sign_in"
                    | "invalid_actor",
                ) => Some(0),
                _ => None,
            };
            let reason = place.and_then(|place| call.args.iter().nth(place)).and_then(text);
            self.0.extend(reason.filter(|reason| !reason.is_empty()));
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_impl_item_fn(&mut self, function: &syn::ImplItemFn) {
        if function.sig.ident == "reason" {
            let mut texts = Texts::default();
            texts.visit_block(&function.block);
            self.0.extend(texts.0);
        }
        visit::visit_impl_item_fn(self, function);
    }
}

/// Collects all texts.
#[derive(Default)]
struct Texts(BTreeSet<String>);

impl Visit<'_> for Texts {
    fn visit_lit_str(&mut self, literal: &syn::LitStr) {
        self.0.insert(literal.value());
    }
}

#[test]
fn the_manual_explains_each_reason_that_the_code_gives() {
    let (mut reasons, mut texts) = (Reasons::default(), Texts::default());
    for (_, code) in core().modules() {
        let file: syn::File = syn::parse2(code).unwrap();
        reasons.visit_file(&file);
        texts.visit_file(&file);
    }
    let explained = |page: &str, heading: &str| -> BTreeSet<String> {
        let page = fs::read_to_string(repository().join(page)).unwrap();
        let section = page.split_once(heading).unwrap().1;
        let section = section.split_once("\n#").unwrap().0;
        let heads = section.split("\n- ").skip(1).map(|item| item.split_once(": ").unwrap().0);
        heads.flat_map(|head| head.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
    };
    let filter = explained(PAGE, "\n### Reasons\n");
    let guard = explained("docs/guard.md", "\n## What you see\n");
    let known: BTreeSet<_> = filter.union(&guard).cloned().collect();
    let missing: Vec<_> = reasons.0.difference(&known).collect();
    assert!(missing.is_empty(), "the manual does not explain {missing:#?}");
    let invented: Vec<_> = known.difference(&texts.0).collect();
    assert!(invented.is_empty(), "no code gives the reasons {invented:#?}");
    assert!(reasons.0.len() > 90, "{:#?}", reasons.0);
}
