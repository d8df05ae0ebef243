//! The stand-in for scripts in a build without the feature `custom-claims`.

use std::collections::BTreeMap;
use std::convert::Infallible;

use serde_json::{Map, Value};

use super::{ClaimsError, CompileError, Input, Limits};

/// A script, which cannot exist in this build: it has no engine.
#[derive(Debug)]
pub struct Script(Infallible);

impl Script {
    /// Refuses every script.
    pub fn compile(
        _source: &str,
        _limits: &Limits,
        _environment_variables: &BTreeMap<String, String>,
    ) -> Result<Self, CompileError> {
        Err(CompileError {
            message: "this build runs no scripts (the cargo feature custom-claims)".into(),
            position: None,
        })
    }

    /// Refuses every script.
    pub(super) fn compile_authorizer(
        source: &str,
        limits: &Limits,
        environment_variables: &BTreeMap<String, String>,
    ) -> Result<Self, CompileError> {
        Self::compile(source, limits, environment_variables)
    }

    /// Cannot be called, because no script exists.
    pub fn run(
        &self,
        _input: &Input<'_>,
        _log: &mut dyn FnMut(&str),
    ) -> Result<Map<String, Value>, ClaimsError> {
        match self.0 {}
    }

    /// Cannot be called, because no script exists.
    pub(super) fn call(
        &self,
        _input: &str,
        _log: &mut dyn FnMut(&str),
    ) -> Result<Option<String>, ClaimsError> {
        match self.0 {}
    }
}
