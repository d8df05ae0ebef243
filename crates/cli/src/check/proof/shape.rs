//! Compares the guard's entry in `http_filters` with the shipped one: envoy.yaml, docs/guard.md.
//!
//! Envoy's matchers can express anything, and most matchers would enter the guard too rarely. The
//! shipped entry is known to enter the guard for every impersonation. No other shape has been shown
//! to do that.

use super::super::findings::Doubt;
use super::super::tree::{Place, member_path};

const WITH_MATCHER: &str = "envoy.extensions.common.matching.v3.ExtensionWithMatcher";
const WASM: &str = "envoy.extensions.filters.http.wasm.v3.Wasm";
const COMPOSITE: &str = "envoy.extensions.filters.http.composite.v3.Composite";
const EXECUTE: &str = "envoy.extensions.filters.http.composite.v3.ExecuteFilterAction";
const METADATA_INPUT: &str =
    "envoy.extensions.matching.common_inputs.network.v3.DynamicMetadataInput";
const METADATA_MATCHER: &str = "envoy.extensions.matching.input_matchers.metadata.v3.Metadata";
const JWT_AUTHN: &str = "envoy.filters.http.jwt_authn";

/// The names that the entry must have.
pub(super) struct Guard<'c> {
    pub(super) issuer: &'c str,
    pub(super) payload_in_metadata: &'c str,
}

/// Finds a difference between an entry and the shipped one.
pub(super) fn check(entry: &Place<'_>, guard: &Guard<'_>) -> Vec<Doubt> {
    differs(entry, guard).err().into_iter().collect()
}

/// Finds a difference between an entry and one that every request enters, as on the hosts of
/// browser sessions.
pub(super) fn check_plain(entry: &Place<'_>) -> Vec<Doubt> {
    let differs = || {
        only(entry, &["name", "typed_config", "disabled", "is_optional"])?;
        if typed(entry, "typed_config", WASM).is_some() {
            return Ok(());
        }
        Err(Doubt::new(
            &*entry.path,
            "on the sessions' hosts a token without txn passes the guard by here: let every request enter the guard, without the composite filter",
        ))
    };
    differs().err().into_iter().collect()
}

/// Fails with the first difference.
fn differs(entry: &Place<'_>, guard: &Guard<'_>) -> Result<(), Doubt> {
    only(entry, &["name", "typed_config", "disabled", "is_optional"])?;
    let Some(matched) = typed(entry, "typed_config", WITH_MATCHER) else {
        return Err(Doubt::new(
            &*entry.path,
            "the guard is entered by every request, and refuses those of ordinary users, which have no txn: let the composite filter enter it for those that have one",
        ));
    };
    only(&matched, &["extension_config", "xds_matcher"])?;
    let extension = required(&matched, "extension_config")?;
    only(&extension, &["name", "typed_config"])?;
    let composite = typed_as(&extension, "typed_config", COMPOSITE)?;
    only(&composite, &[])?;

    let matcher = required(&matched, "xds_matcher")?;
    only(&matcher, &["matcher_list"])?;
    let list = required(&matcher, "matcher_list")?;
    only(&list, &["matchers"])?;
    let matchers = list.list("matchers");
    let (Some(one), None) = (matchers.first(), matchers.get(1)) else {
        let text = "the matcher of the guard has not exactly one entry: what another one matches first does not enter the guard; leave the one for txn";
        return Err(Doubt::new(member_path(&list.path, "matchers"), text));
    };
    only(one, &["predicate", "on_match"])?;
    check_predicate(&required(one, "predicate")?, guard)?;
    check_action(&required(one, "on_match")?)
}

/// Checks the match on `txn`, or on `cnf`.
fn check_predicate(predicate: &Place<'_>, guard: &Guard<'_>) -> Result<(), Doubt> {
    only(predicate, &["or_matcher", "single_predicate", "and_matcher"])?;
    let Some(either) = predicate.get("or_matcher") else {
        check_txn(predicate, guard)?;
        return Err(Doubt::new(
            &*predicate.path,
            "the guard is not entered for cnf: an ordinary user's token that is bound to a key passes without its proof; let or_matcher match txn or cnf, as the shipped envoy.yaml does",
        ));
    };
    only(predicate, &["or_matcher"])?;
    only(&either, &["predicate"])?;
    let predicates = either.list("predicate");
    let [txn, cnf] = &*predicates else { return Err(not_by_txn(&either, guard)) };
    check_txn(txn, guard)?;
    only(cnf, &["single_predicate"])?;
    check_single(&required(cnf, "single_predicate")?, guard, "cnf")
}

/// Checks the match on `txn`. If an API trusts several issuers, `iss` may be matched as well
/// (docs/guard.md).
fn check_txn(predicate: &Place<'_>, guard: &Guard<'_>) -> Result<(), Doubt> {
    only(predicate, &["single_predicate", "and_matcher"])?;
    let Some(all) = predicate.get("and_matcher") else {
        return check_single(&required(predicate, "single_predicate")?, guard, "txn");
    };
    only(predicate, &["and_matcher"])?;
    only(&all, &["predicate"])?;
    let mut by_txn = false;
    for predicate in all.list("predicate") {
        only(&predicate, &["single_predicate"])?;
        let single = required(&predicate, "single_predicate")?;
        if check_single(&single, guard, "txn").is_ok() {
            by_txn = true;
        } else {
            check_single(&single, guard, "iss")?;
        }
    }
    if by_txn { Ok(()) } else { Err(not_by_txn(&all, guard)) }
}

fn check_single(single: &Place<'_>, guard: &Guard<'_>, claim: &str) -> Result<(), Doubt> {
    only(single, &["input", "custom_match"])?;
    let input = required(single, "input")?;
    only(&input, &["name", "typed_config"])?;
    let input =
        typed_as(&input, "typed_config", METADATA_INPUT).map_err(|_| not_by_txn(single, guard))?;
    only(&input, &["filter", "path"])?;
    let keys: Vec<_> = input
        .list("path")
        .iter()
        .map(|segment| segment.text_of("key").unwrap_or_default())
        .collect();
    if input.text_of("filter") != Some(JWT_AUTHN) || keys != [guard.payload_in_metadata, claim] {
        return Err(not_by_txn(&input, guard));
    }
    let matched = required(single, "custom_match")?;
    only(&matched, &["name", "typed_config"])?;
    let matched = typed_as(&matched, "typed_config", METADATA_MATCHER)
        .map_err(|_| not_by_txn(single, guard))?;
    only(&matched, &["value"])?;
    let value = required(&matched, "value")?;
    let holds = match claim {
        "txn" | "cnf" => {
            value.is_set("present_match") && value.other_than(&["present_match"]).is_none()
        }
        _ => {
            let exact = value.at(&["string_match", "exact"]);
            exact.as_ref().and_then(Place::text) == Some(guard.issuer)
                && value.other_than(&["string_match"]).is_none()
                && value.get("string_match").is_some_and(|one| one.other_than(&["exact"]).is_none())
        }
    };
    if holds { Ok(()) } else { Err(not_by_txn(&value, guard)) }
}

fn not_by_txn(place: &Place<'_>, guard: &Guard<'_>) -> Doubt {
    Doubt::new(
        &*place.path,
        format!(
            "the guard must be entered where {0}.txn or {0}.cnf of {JWT_AUTHN} is present (present_match): tokens that do not match pass it by",
            guard.payload_in_metadata
        ),
    )
}

fn check_action(on_match: &Place<'_>) -> Result<(), Doubt> {
    only(on_match, &["action"])?;
    let action = required(on_match, "action")?;
    only(&action, &["name", "typed_config"])?;
    let Some(action) = typed(&action, "typed_config", EXECUTE) else {
        return Err(Doubt::new(
            action.path,
            "the guard is not entered by ExecuteFilterAction of the composite filter: take that action",
        ));
    };
    if let Some(sample) = action.get("sample_percent") {
        return Err(Doubt::new(
            sample.path,
            "sample_percent enters the guard for a part of the requests only: take it out",
        ));
    }
    only(&action, &["typed_config"])?;
    let filter = required(&action, "typed_config")?;
    only(&filter, &["name", "typed_config"])
}

/// Refuses members that the shipped entry does not have.
fn only(place: &Place<'_>, members: &[&str]) -> Result<(), Doubt> {
    let Some(other) = place.other_than(members) else { return Ok(()) };
    let name = other.path.rsplit(['.', '[']).next().unwrap_or_default().to_owned();
    Err(Doubt::new(
        other.path,
        format!(
            "{name} is not part of the guard's entry in the shipped envoy.yaml: that it is entered for every impersonation is not certain; take it out"
        ),
    ))
}

fn required<'d>(place: &Place<'d>, name: &str) -> Result<Place<'d>, Doubt> {
    place.get(name).ok_or_else(|| {
        Doubt::new(
            &*place.path,
            format!("{name} is missing here, which the guard's entry in the shipped envoy.yaml has: copy it from there"),
        )
    })
}

/// Returns the fields of a message if it has this type.
fn typed<'d>(place: &Place<'d>, name: &str, wanted: &str) -> Option<Place<'d>> {
    let message = place.get(name)?.message()?;
    (message.r#type == wanted).then_some(message.fields)
}

fn typed_as<'d>(place: &Place<'d>, name: &str, wanted: &str) -> Result<Place<'d>, Doubt> {
    typed(place, name, wanted).ok_or_else(|| {
        Doubt::new(
            &*place.path,
            format!("this is no {wanted}, which the guard's entry in the shipped envoy.yaml has: copy it from there"),
        )
    })
}
