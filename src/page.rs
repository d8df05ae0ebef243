//! The page of live impersonations, and the banner of browser sessions, which build.rs makes of the
//! sources in console/.

use impersonation_issuer::issuer::BuiltPage;

/// Returns the page; `None` if the module is built without it.
#[cfg(feature = "console")]
#[expect(clippy::unnecessary_wraps, reason = "without the feature there is no page")]
pub(crate) const fn built() -> Option<BuiltPage> {
    Some(BuiltPage {
        gzip: include_bytes!(concat!(env!("OUT_DIR"), "/page.gz")),
        manifest: include_str!(concat!(env!("OUT_DIR"), "/page.json")),
        banner: include_bytes!(concat!(env!("OUT_DIR"), "/banner.gz")),
    })
}

#[cfg(not(feature = "console"))]
pub(crate) const fn built() -> Option<BuiltPage> {
    None
}
