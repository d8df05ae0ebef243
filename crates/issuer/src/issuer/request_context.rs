//! The context of one request to an endpoint.

use super::request::Head;
use super::service::Service;
use crate::audit::Trail;
use crate::host::Host;
use crate::step::Context;

/// A request to an endpoint, with the means to answer it. The body is apart: not every endpoint
/// reads it.
#[derive(Clone, Copy)]
pub(super) struct RequestContext<'r> {
    /// The service, with its configuration and its state.
    pub(super) service: &'r Service,
    /// Reaches the host, and sends calls.
    pub(super) context: &'r Context,
    /// Collects the facts for the audit log.
    pub(super) trail: &'r Trail,
    /// The header fields of the request.
    pub(super) head: &'r Head,
}

impl<'r> RequestContext<'r> {
    /// Returns the host.
    pub(super) fn host(self) -> &'r dyn Host {
        self.context.host()
    }
}
