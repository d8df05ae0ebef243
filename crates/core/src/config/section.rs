//! Declares a section of the configuration: each member once, with its name, kind, default and
//! meaning.
//!
//! [`section!`] turns a declaration into the struct, the code that reads it and, for tests, a
//! description. `docs/configuration.md`, `docs/guard.md` and both JSON Schemas are generated from
//! the descriptions, so the documentation cannot differ from the parser.

use std::cell::RefCell;

use serde_json::Value;

use super::node::{Members, Node, Reading};
use super::{ConfigEnvironment, ConfigError, Problem};

#[cfg(test)]
use super::describe::{Described, Descriptions};

/// A kind of value that a member can hold: reads it, and describes it for the documentation and the
/// schema.
pub(super) trait Kind {
    /// The parsed value.
    type Value;

    /// Reads a value. Returns `None` if it noted a problem.
    fn read(node: Node<'_>) -> Option<Self::Value>;

    /// Describes the values that `read` accepts.
    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described;
}

/// A kind that is read as another kind first: a section whose members are checked with each other,
/// a list without repetitions, a text with a grammar.
pub(super) trait Refined {
    /// The kind that is read first.
    type From: Kind;
    /// The parsed value.
    type Value;

    /// Makes the value of what was read at `place`. Returns `None` if it noted a problem.
    fn refine(raw: Raw<Self>, place: Node<'_>) -> Option<Self::Value>;

    /// Adds to the other kind's description what `refine` demands.
    #[cfg(test)]
    fn refine_description(described: Described, _: &mut Descriptions) -> Described {
        described
    }
}

/// The value of the kind that is read first.
pub(super) type Raw<R> = <<R as Refined>::From as Kind>::Value;

impl<R: Refined> Kind for R {
    type Value = R::Value;

    fn read(node: Node<'_>) -> Option<R::Value> {
        let place = node.clone();
        R::refine(R::From::read(node)?, place)
    }

    #[cfg(test)]
    fn describe(descriptions: &mut Descriptions) -> Described {
        R::refine_description(R::From::describe(descriptions), descriptions)
    }
}

/// Declares a section of the configuration.
///
/// ```text
/// section! {
///     /// The purpose of the section.
///     pub struct Name under "heading", "names" {
///         /// The meaning of a member that must be given.
///         first: KindOfFirst,
///         /// The meaning of a member with a default, which is written as JSON.
///         second: KindOfSecond = "600s",
///         /// The meaning of a member that may be absent. The text behind `=>` documents its
///         /// absence.
///         third: KindOfThird => "nobody is asked",
///         /// A field of a public struct names its type, because kinds are private.
///         pub fourth: KindOfFourth as u32,
///     }
///     exactly_one [third, fifth]
/// }
/// ```
///
/// `under` is optional. It gives the section a heading of its own on the page; the second text is
/// the plural for lists. A type that refines the section further implements [`Refined`].
///
/// The last line is optional. It takes `exactly_one`, `at_least_one` or `at_most_one`.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $(#[derive($($derive:ident),+)])?
        $vis:vis struct $name:ident $(<$holder:ident : $bound:ident>)?
            $(under $heading:literal, $items:literal)?
        {
            $(
                $(#[doc = $doc:literal])+
                $field_vis:vis $field:ident : $kind:ty $(as $type:ty)?
                    $(= $default:tt)? $(=> $absent:literal)?
            ),* $(,)?
        }
        $($choice:ident [$($chosen:ident),+ $(,)?])?
    ) => {
        $(#[doc = $about])+
        $(#[derive($($derive),+)])?
        $vis struct $name $(<$holder: $bound>)? {
            $(
                $(#[doc = $doc])+
                $field_vis $field: section!(@type $kind, [$($type)?], [$($absent)?]),
            )*
        }

        impl $(<$holder: $bound>)? $crate::config::section::Kind for $name $(<$holder>)? {
            type Value = Self;

            fn read(node: $crate::config::node::Node<'_>) -> Option<Self> {
                #[allow(unused_mut, clippy::allow_attributes, reason = "not every section has members")]
                let mut members = node.object()?;
                $(
                    members.choose(
                        $crate::config::node::HowMany::$choice,
                        const { &[$($crate::config::section::name(stringify!($chosen))),+] },
                    );
                )?
                $(
                    let $field = {
                        const NAME: &str = $crate::config::section::name(stringify!($field));
                        section!(@read members, NAME, $kind, [$($default)?], [$($absent)?])
                    };
                )*
                members.finish()?;
                Some(Self { $($field: $field?,)* })
            }

            #[cfg(test)]
            fn describe(
                descriptions: &mut $crate::config::describe::Descriptions,
            ) -> $crate::config::describe::Described {
                #[allow(unused_imports, clippy::allow_attributes, reason = "not every section has members")]
                use $crate::config::describe::{Described, Member, Presence};
                #[allow(unused_imports, clippy::allow_attributes, reason = "not every section has members")]
                use $crate::config::section::Kind;
                let _ = &descriptions;
                let members: Vec<Member> = vec![$(Member {
                    name: $crate::config::section::name(stringify!($field)),
                    meaning: concat!($($doc, "\n"),+),
                    presence: section!(@presence [$($default)?], [$($absent)?]),
                    described: <$kind as Kind>::describe(descriptions),
                }),*];
                let choice = section!(@choice [$($choice [$($chosen),+])?]);
                Described::section(concat!($($about, "\n"),+), members, choice)
                    $(.under(descriptions, $heading, $items))?
            }
        }
    };

    (@type $kind:ty, [$type:ty], [$($absent:literal)?]) => { $type };
    (@type $kind:ty, [], []) => { <$kind as $crate::config::section::Kind>::Value };
    (@type $kind:ty, [], [$absent:literal]) => {
        Option<<$kind as $crate::config::section::Kind>::Value>
    };

    (@read $members:ident, $name:ident, $kind:ty, [], []) => {
        $crate::config::section::required::<$kind>(&mut $members, $name)
    };
    (@read $members:ident, $name:ident, $kind:ty, [$default:tt], []) => {
        $crate::config::section::or_default::<$kind>(&mut $members, $name, || {
            section!(@value $default)
        })
    };
    (@read $members:ident, $name:ident, $kind:ty, [], [$absent:literal]) => {
        $crate::config::section::optional::<$kind>(&mut $members, $name)
    };

    (@value []) => { serde_json::Value::Array(Vec::new()) };
    (@value {}) => { serde_json::Value::Object(serde_json::Map::new()) };
    (@value $default:tt) => { serde_json::Value::from($default) };

    (@presence [], []) => { Presence::Required };
    (@presence [$default:tt], []) => { Presence::Default(section!(@value $default)) };
    (@presence [], [$absent:literal]) => { Presence::Optional($absent) };

    (@choice []) => { None };
    (@choice [$choice:ident [$($chosen:ident),+]]) => {
        Some((
            $crate::config::node::HowMany::$choice,
            vec![$($crate::config::section::name(stringify!($chosen))),+],
        ))
    };
}

/// Returns the member's name as the operator writes it: without the `r#` of a Rust keyword.
pub(super) const fn name(field: &'static str) -> &'static str {
    match field.as_bytes() {
        [b'r', b'#', ..] => field.split_at(2).1,
        _ => field,
    }
}

// Members of one kind share the code that reads them. Without `inline(never)` each would have a
// copy.

/// Reads a member that must be given.
#[inline(never)]
pub(super) fn required<K: Kind>(members: &mut Members<'_>, name: &'static str) -> Option<K::Value> {
    match members.get(name) {
        Some(node) => K::read(node),
        None => {
            members.lacks(name);
            None
        }
    }
}

/// Reads a member, or its default if it is absent.
#[inline(never)]
pub(super) fn or_default<K: Kind>(
    members: &mut Members<'_>,
    name: &'static str,
    default: fn() -> Value,
) -> Option<K::Value> {
    match members.get(name) {
        Some(node) => K::read(node),
        None => K::read(members.at(name, &default())),
    }
}

/// Reads a member that may be absent.
#[inline(never)]
pub(super) fn optional<K: Kind>(
    members: &mut Members<'_>,
    name: &'static str,
) -> Option<Option<K::Value>> {
    match members.get(name) {
        Some(node) => K::read(node).map(Some),
        None => Some(None),
    }
}

/// Reads a whole configuration. The second value has the warnings: settings that work but are
/// probably not intended.
pub(super) fn read_whole<K: Kind>(
    value: &Value,
    environment: &dyn ConfigEnvironment,
) -> Result<(K::Value, Vec<Problem>), ConfigError> {
    let reading =
        Reading { environment, problems: RefCell::default(), warnings: RefCell::default() };
    let config = K::read(Node { reading: &reading, path: String::new(), value });
    let problems = reading.problems.into_inner();
    match config {
        Some(config) if problems.is_empty() => Ok((config, reading.warnings.into_inner())),
        _ => Err(ConfigError { problems }),
    }
}

pub(super) use section;
