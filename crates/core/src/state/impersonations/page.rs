//! One page of the list, and the place where the next page begins.

use super::live::LiveImpersonation;

/// The place where the next page begins: behind this impersonation of this bucket.
///
/// A caller gets the place as text and returns it to ask for the next page. A place that a caller
/// makes up is harmless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub(crate) bucket: u32,
    pub(crate) after: Option<String>,
}

/// A part of the list.
#[derive(Debug)]
pub struct Page {
    /// The impersonations that were found.
    pub entries: Vec<LiveImpersonation>,
    /// The place where the next page begins; `None` at the end.
    pub next: Option<Place>,
    /// True if every impersonation of this part could be read.
    pub complete: bool,
}

/// The result of adding an impersonation to the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Listed {
    /// The impersonation is listed.
    Yes,
    /// There was no room. The list says that it is incomplete until this impersonation has expired.
    NoRoom,
}

impl Place {
    /// The place as text.
    pub fn to_text(&self) -> String {
        format!("{}.{}", self.bucket, self.after.as_deref().unwrap_or_default())
    }

    /// Reads a place; `None` if the text is no place.
    pub fn parse(text: &str) -> Option<Self> {
        let (bucket, after) = text.split_once('.')?;
        let digits = bucket.bytes().all(|byte| byte.is_ascii_digit());
        let bucket = bucket.parse().ok().filter(|_| digits)?;
        let after = Some(after.to_owned()).filter(|after| !after.is_empty());
        Some(Self { bucket, after })
    }
}
