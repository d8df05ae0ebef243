//! What is probed, and with whose credentials.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, FromArgMatches as _};
use serde_json::Value;

use crate::check::read_yaml;
use crate::service::{Base, base_address};
use crate::{Failure, open};

/// Proves from outside that a running deployment holds: each token is exchanged once, the guard stands
/// before each API, and an impersonation that is ended is refused everywhere.
///
///     impersonation-filter probe --filter https://auth.example.com \
///       --api https://orders.example.com --read /orders/7 --write /orders \
///       --resource https://api.example.com/orders --scope orders:read --user probe-user \
///       --client-id support-console --client-secret-file secret \
///       --caller-token-file backend.token --actor-token-file agent.token \
///       --operator-token-file operator.token
///     impersonation-filter probe --settings probe.yaml --json
///
/// It impersonates the user that you name: use an account that exists for this. It ends each
/// impersonation that it began and takes back each subject token that it did not exchange. It prints
/// no token.
///
/// Exit status: 0 everything holds, 1 something does not, 2 nothing could be probed.
#[derive(Debug, Clone, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// A YAML or JSON file with the other flags as members: `filter: https://auth.example.com`.
    /// A member with several values is a list.
    #[arg(long, value_name = "FILE", conflicts_with = "filter")]
    settings: Option<PathBuf>,
    /// The base address of a filter. Repeat it for each Envoy; the first one mints.
    #[arg(long, value_name = "URL", value_parser = base_address, required_unless_present = "settings")]
    filter: Vec<Base>,
    /// The base address of an API behind the guard. Repeat it for each address that leads to one.
    #[arg(long, value_name = "URL", value_parser = base_address, required_unless_present = "settings")]
    api: Vec<Base>,
    /// A path of the API that the impersonation may read with GET.
    #[arg(long, value_name = "PATH", value_parser = path, required_unless_present = "settings")]
    read: Option<String>,
    /// A path of the API that the impersonation may not write with POST.
    #[arg(long, value_name = "PATH", value_parser = path, required_unless_present = "settings")]
    write: Option<String>,
    /// A path of the API whose answer goes on for some seconds: server-sent events, a download.
    /// Without it no open stream is tested.
    #[arg(long, value_name = "PATH", value_parser = path)]
    stream: Option<String>,
    /// The resource of the exchange.
    #[arg(long, required_unless_present = "settings")]
    resource: Option<String>,
    /// The scope of the exchange.
    #[arg(long, required_unless_present = "settings")]
    scope: Option<String>,
    /// The user who is impersonated.
    #[arg(long, required_unless_present = "settings")]
    user: Option<String>,
    /// The context of the mint, a JSON object.
    #[arg(long, value_name = "JSON", value_parser = object)]
    context: Option<Value>,
    /// The client of the exchange.
    #[arg(long, required_unless_present = "settings")]
    client_id: Option<String>,
    /// A file with the client's secret, sent as HTTP Basic. Without it the client is a public one.
    #[arg(long, value_name = "FILE")]
    client_secret_file: Option<PathBuf>,
    /// A file with the access token of the backend that mints.
    #[arg(long, value_name = "FILE", required_unless_present = "settings")]
    caller_token_file: Option<PathBuf>,
    /// A file with the access token of the agent who acts. Without it nobody is named as actor.
    #[arg(long, value_name = "FILE")]
    actor_token_file: Option<PathBuf>,
    /// A file with the access token of an operator, with the scope impersonations:revoke.
    #[arg(long, value_name = "FILE", required_unless_present = "settings")]
    operator_token_file: Option<PathBuf>,
    /// A PEM file with the authorities that may vouch for the addresses.
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// The longest time, in milliseconds, from the answer to a revocation until the last request is
    /// let through.
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    within: u64,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// The settings of one probe, all there.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) filters: Vec<Base>,
    pub(super) apis: Vec<Base>,
    pub(super) read: String,
    pub(super) write: String,
    pub(super) stream: Option<String>,
    pub(super) resource: String,
    pub(super) scope: String,
    pub(super) user: String,
    pub(super) context: Option<Value>,
    pub(super) client_id: String,
    pub(super) client_secret_file: Option<PathBuf>,
    pub(super) caller_token_file: PathBuf,
    pub(super) actor_token_file: Option<PathBuf>,
    pub(super) operator_token_file: PathBuf,
    pub(super) cacert: Option<PathBuf>,
    pub(super) within: Duration,
    pub(super) json: bool,
}

impl Arguments {
    /// Reads the settings file, if one is named, and returns all settings.
    pub(super) fn complete(&self) -> Result<Settings, Failure> {
        let given = match &self.settings {
            Some(file) => from_file(file)?,
            None => self.clone(),
        };
        let missing = |name: &str| Failure(format!("--{name} is missing"));
        Ok(Settings {
            read: given.read.ok_or_else(|| missing("read"))?,
            write: given.write.ok_or_else(|| missing("write"))?,
            resource: given.resource.ok_or_else(|| missing("resource"))?,
            scope: given.scope.ok_or_else(|| missing("scope"))?,
            user: given.user.ok_or_else(|| missing("user"))?,
            client_id: given.client_id.ok_or_else(|| missing("client-id"))?,
            caller_token_file: given
                .caller_token_file
                .ok_or_else(|| missing("caller-token-file"))?,
            operator_token_file: given
                .operator_token_file
                .ok_or_else(|| missing("operator-token-file"))?,
            filters: given.filter,
            apis: given.api,
            stream: given.stream,
            context: given.context,
            client_secret_file: given.client_secret_file,
            actor_token_file: given.actor_token_file,
            cacert: given.cacert,
            within: Duration::from_millis(given.within),
            json: given.json || self.json,
        })
    }
}

/// Reads a file as if its members were flags, so that a flag is declared once.
fn from_file(file: &Path) -> Result<Arguments, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::new(file.display(), error);
    let mut text = String::new();
    open(file).and_then(|mut it| it.read_to_string(&mut text)).map_err(|it| wrong(&it))?;
    let Value::Object(members) = read_yaml(&text).map_err(|error| wrong(&error))? else {
        return Err(wrong(&"expected the flags as members of one object"));
    };
    let mut words = vec!["probe".to_owned()];
    for (name, value) in &members {
        let values = match value {
            Value::Array(values) => values.iter().collect(),
            value => vec![value],
        };
        for value in values {
            words.push(format!("--{}", name.replace('_', "-")));
            match value {
                Value::Bool(true) => {}
                Value::String(text) => words.push(text.clone()),
                other => words.push(other.to_string()),
            }
        }
    }
    let command = Arguments::augment_args(clap::Command::new("probe").no_binary_name(false));
    let matches = command.try_get_matches_from(words).map_err(|error| wrong(&error))?;
    Arguments::from_arg_matches(&matches).map_err(|error| wrong(&error))
}

fn path(text: &str) -> Result<String, String> {
    let normal = text.starts_with('/') && !text.contains(['?', '#', ' ', ';', '%', '\\']);
    match normal && !text.contains("//") && !text.contains("/.") {
        true => Ok(text.to_owned()),
        false => Err("expected a normal path without a query, such as /orders/7".to_owned()),
    }
}

fn object(text: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if value.is_object() { Ok(value) } else { Err("expected a JSON object".to_owned()) }
}
