//! The deployment to probe, and the files with the credentials for it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, FromArgMatches as _};
use serde_json::Value;

use crate::check::read_yaml;
use crate::duration::duration;
use crate::http::{Base, base_address};
use crate::{Failure, text_in};

/// Proves from outside that a running deployment holds: each subject token is exchanged once, the
/// guard stands before each API, and an ended impersonation is refused everywhere.
///
///     impersonation-filter probe --filter https://auth.example.com \
///       --api https://orders.example.com --read /orders/7 --write /orders \
///       --resource https://api.example.com/orders --scope orders:read --user probe-user \
///       --client-id support-console --client-secret-file secret \
///       --caller-token-file backend.token --actor-token-file agent.token \
///       --operator-token-file operator.token
///     impersonation-filter probe --settings probe.yaml --json
///
/// The probe begins impersonations of the user that you name, so name an account that exists for
/// this. It ends each of them and takes back each subject token that it did not exchange, also when
/// SIGINT or SIGTERM interrupts it. It prints no token, and writes no file. It speaks HTTP/1.1.
///
/// Exit status: 0 everything holds, 1 something does not, 2 nothing was proved: a credential is
/// wrong, no API answered, or the probe was interrupted.
#[derive(Debug, Clone, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// A YAML or JSON file with all other flags as members: `filter: https://auth.example.com`. A
    /// flag that may be repeated is a list there.
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_THE_FILE)]
    settings: Option<PathBuf>,
    /// The base address of a filter. Repeat the flag for each Envoy that has the filter.
    #[arg(long, value_name = "URL", value_parser = base_address, required_unless_present = "settings")]
    filter: Vec<Base>,
    /// The base address of an API behind the guard. Repeat the flag for each address that leads to
    /// the API: another listener, another Envoy, another host name.
    #[arg(long, value_name = "URL", value_parser = base_address, required_unless_present = "settings")]
    api: Vec<Base>,
    /// A path of the API that the impersonation may read with GET.
    #[arg(long, value_name = "PATH", value_parser = path, required_unless_present = "settings")]
    read: Option<String>,
    /// A path of the API that the impersonation may not write, with POST or any other method.
    #[arg(long, value_name = "PATH", value_parser = path_to_write, required_unless_present = "settings")]
    write: Option<String>,
    /// A path of the API whose response goes on for some seconds: server-sent events, a download.
    /// Without it no open stream is tested.
    #[arg(long, value_name = "PATH", value_parser = path)]
    stream: Option<String>,
    /// A path of the API whose response repeats the headers of the request. With
    /// --ordinary-token-file it tests that nobody can forge the guard's headers.
    #[arg(long, value_name = "PATH", value_parser = path)]
    echo: Option<String>,
    /// A header that the guard sets, as in its member `headers`. Repeat the flag for each.
    #[arg(long, value_name = "NAME", value_parser = header, default_values = ["x-impersonation-id", "x-impersonator"])]
    identity_header: Vec<String>,
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
    /// A file with the access token of the agent who acts. Without it the exchange names no actor.
    #[arg(long, value_name = "FILE")]
    actor_token_file: Option<PathBuf>,
    /// A file with the access token of an operator, with the scope impersonations:revoke.
    #[arg(long, value_name = "FILE", required_unless_present = "settings")]
    operator_token_file: Option<PathBuf>,
    /// A file with the access token of an ordinary user of the API, for --echo.
    #[arg(long, value_name = "FILE")]
    ordinary_token_file: Option<PathBuf>,
    /// A file with an access token that the API must refuse: for another audience, or of another
    /// issuer. The APIs get this token, so use one that is worth nothing elsewhere. Repeat the flag
    /// for each.
    #[arg(long, value_name = "FILE")]
    refused_token_file: Vec<PathBuf>,
    /// The origin of the browser sessions' domain: https://shop-as-user.example. A session's host is
    /// one label below. Below `localhost` it is this machine. Needs the next three flags.
    #[arg(long, value_name = "URL", value_parser = base_address, requires_all = ["session_resource", "session_scope", "session_origin"])]
    session: Option<Base>,
    /// The resource of browser sessions.
    #[arg(long, requires = "session")]
    session_resource: Option<String>,
    /// The scope of the probe's browser sessions.
    #[arg(long, requires = "session")]
    session_scope: Option<String>,
    /// An origin whose pages may begin a browser session.
    #[arg(long, value_name = "URL", value_parser = base_address, requires = "session")]
    session_origin: Option<Base>,
    /// A path of the application that a browser session may read with GET.
    #[arg(long, value_name = "PATH", value_parser = path, default_value = "/")]
    session_read: String,
    /// Bind the probe's tokens to a key (DPoP), also where neither the client nor the resource asks
    /// for it. Where one asks, the probe does so by itself.
    #[arg(long)]
    dpop: bool,
    /// The guard's `public_origin`, for proofs, if it is not the origin of each --api.
    #[arg(long, value_name = "URL", value_parser = base_address)]
    public_origin: Option<Base>,
    /// The token endpoint below the filter's address, if the filter's `paths` name another one.
    #[arg(long, value_name = "PATH", value_parser = path, default_value = "/oidc/token")]
    token_path: String,
    /// The endpoint that mints, as in the filter's `paths`.
    #[arg(long, value_name = "PATH", value_parser = path, default_value = "/api/subject-tokens")]
    subject_tokens_path: String,
    /// The list of impersonations, as in the filter's `paths`.
    #[arg(long, value_name = "PATH", value_parser = path, default_value = "/api/impersonations")]
    impersonations_path: String,
    /// A PEM file with the certificate authorities to trust for all addresses, instead of the
    /// machine's own.
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// The time from the response to a revocation until no request passes and no stream is open.
    /// The guard promises one second; the default leaves one more for the network.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "2s")]
    ends_within: Duration,
    /// Present no spent subject token, so that the alarm for replays stays silent: for cron.
    #[arg(long)]
    no_replays: bool,
    /// A check that was not tried counts as one that does not hold.
    #[arg(long)]
    strict: bool,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// The flags that may not stand beside `--settings`, because the file has them. If one were
/// ignored, nobody would notice that its address was not probed.
const OF_THE_FILE: [&str; 30] = [
    "filter",
    "api",
    "read",
    "write",
    "stream",
    "echo",
    "identity_header",
    "resource",
    "scope",
    "user",
    "context",
    "client_id",
    "client_secret_file",
    "caller_token_file",
    "actor_token_file",
    "operator_token_file",
    "ordinary_token_file",
    "refused_token_file",
    "session",
    "session_resource",
    "session_scope",
    "session_origin",
    "session_read",
    "dpop",
    "public_origin",
    "token_path",
    "subject_tokens_path",
    "impersonations_path",
    "cacert",
    "ends_within",
];

/// The settings of one probe, without the gaps of [`Arguments`].
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) filters: Vec<Base>,
    pub(super) apis: Vec<Base>,
    pub(super) read: String,
    pub(super) write: String,
    pub(super) stream: Option<String>,
    pub(super) echo: Option<String>,
    pub(super) identity_headers: Vec<String>,
    pub(super) resource: String,
    pub(super) scope: String,
    pub(super) user: String,
    pub(super) context: Option<Value>,
    pub(super) client_id: String,
    pub(super) client_secret_file: Option<PathBuf>,
    pub(super) caller_token_file: PathBuf,
    pub(super) actor_token_file: Option<PathBuf>,
    pub(super) operator_token_file: PathBuf,
    pub(super) ordinary_token_file: Option<PathBuf>,
    pub(super) refused_token_files: Vec<PathBuf>,
    pub(super) session: Option<SessionSettings>,
    pub(super) dpop: bool,
    pub(super) public_origin: Option<Base>,
    pub(super) token_path: String,
    pub(super) subject_tokens_path: String,
    pub(super) impersonations_path: String,
    pub(super) cacert: Option<PathBuf>,
    pub(super) ends_within: Duration,
    pub(super) no_replays: bool,
    pub(super) strict: bool,
    pub(super) json: bool,
}

/// The settings of the browser sessions.
#[derive(Debug)]
pub(super) struct SessionSettings {
    /// The origin of the domain.
    pub(super) base: Base,
    pub(super) resource: String,
    pub(super) scope: String,
    /// An origin that may begin a session.
    pub(super) origin: String,
    pub(super) read: String,
}

impl Arguments {
    /// Reads the settings file, if one is named, and returns all settings.
    pub(super) fn complete(&self) -> Result<Settings, Failure> {
        let given = match &self.settings {
            Some(file) => from_file(file)?,
            None => self.clone(),
        };
        let missing = |name: &str| Failure(format!("--{name} is missing"));
        let session = match given.session {
            None => None,
            Some(base) => Some(SessionSettings {
                base,
                resource: given.session_resource.ok_or_else(|| missing("session-resource"))?,
                scope: given.session_scope.ok_or_else(|| missing("session-scope"))?,
                origin: given.session_origin.ok_or_else(|| missing("session-origin"))?.address,
                read: given.session_read,
            }),
        };
        Ok(Settings {
            filters: given.filter,
            apis: given.api,
            read: given.read.ok_or_else(|| missing("read"))?,
            write: given.write.ok_or_else(|| missing("write"))?,
            stream: given.stream,
            echo: given.echo,
            identity_headers: given.identity_header,
            resource: given.resource.ok_or_else(|| missing("resource"))?,
            scope: given.scope.ok_or_else(|| missing("scope"))?,
            user: given.user.ok_or_else(|| missing("user"))?,
            context: given.context,
            client_id: given.client_id.ok_or_else(|| missing("client-id"))?,
            client_secret_file: given.client_secret_file,
            caller_token_file: given
                .caller_token_file
                .ok_or_else(|| missing("caller-token-file"))?,
            actor_token_file: given.actor_token_file,
            operator_token_file: given
                .operator_token_file
                .ok_or_else(|| missing("operator-token-file"))?,
            ordinary_token_file: given.ordinary_token_file,
            refused_token_files: given.refused_token_file,
            session,
            dpop: given.dpop,
            public_origin: given.public_origin,
            token_path: given.token_path,
            subject_tokens_path: given.subject_tokens_path,
            impersonations_path: given.impersonations_path,
            cacert: given.cacert,
            ends_within: given.ends_within,
            no_replays: given.no_replays || self.no_replays,
            strict: given.strict || self.strict,
            json: given.json || self.json,
        })
    }
}

/// Reads a file as if its members were flags, so that a flag is declared once.
fn from_file(file: &Path) -> Result<Arguments, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::new(file.display(), error);
    let Value::Object(members) = read_yaml(&text_in(file)?).map_err(|error| wrong(&error))? else {
        return Err(wrong(&"expected the flags as members of one object"));
    };
    let mut words = vec!["probe".to_owned()];
    for (name, value) in &members {
        let values = match value {
            Value::Array(values) => values.iter().collect(),
            value => vec![value],
        };
        let flag = format!("--{}", name.replace('_', "-"));
        for value in values {
            match value {
                Value::Bool(true) => words.push(flag.clone()),
                Value::Bool(false) => {}
                Value::String(text) => words.push(format!("{flag}={text}")),
                Value::Null => return Err(wrong(&format!("{name}: expected a value"))),
                other => words.push(format!("{flag}={other}")),
            }
        }
    }
    let command = Arguments::augment_args(clap::Command::new("probe").disable_help_flag(true));
    let read = command
        .try_get_matches_from(words)
        .and_then(|matches| Arguments::from_arg_matches(&matches))
        .map_err(|error| wrong(&in_short(&error)))?;
    match read.settings {
        None => Ok(read),
        Some(_) => Err(wrong(&"a settings file cannot name another one")),
    }
}

/// Returns the message of the command line without the hints on usage, which say nothing to the
/// reader of a file.
fn in_short(error: &clap::Error) -> String {
    let text = error.to_string();
    let message = text.split("\n\n").next().unwrap_or_default();
    let lines: Vec<_> = message.trim_start_matches("error: ").lines().map(str::trim).collect();
    lines.join(" ")
}

fn path(text: &str) -> Result<String, String> {
    let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    let normal = text.starts_with('/') && !text.contains(['?', '#', ';', '%', '\\']);
    match visible && normal && !text.contains("//") && !text.contains("/.") {
        true => Ok(text.to_owned()),
        false => Err("expected a normal path without a query, such as /orders/7".to_owned()),
    }
}

fn path_to_write(text: &str) -> Result<String, String> {
    let path = path(text)?;
    match path.ends_with('/') {
        true => Err("expected a path without a slash at its end, such as /orders".to_owned()),
        false => Ok(path),
    }
}

fn header(text: &str) -> Result<String, String> {
    let name = ureq::http::HeaderName::try_from(text);
    name.map(|name| name.as_str().to_owned())
        .map_err(|_| "expected the name of a header".to_owned())
}

fn object(text: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if value.is_object() { Ok(value) } else { Err("expected a JSON object".to_owned()) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn no_flag_is_ignored_beside_a_settings_file() {
        let command = Line::command();
        let flags = command.get_arguments().map(|it| it.get_id().as_str());
        let others: Vec<_> = flags
            .filter(|it| !["settings", "no_replays", "strict", "json", "help"].contains(it))
            .collect();
        assert_eq!(others, OF_THE_FILE);
    }

    #[test]
    fn a_path_is_normal_and_has_no_query() {
        #[rustfmt::skip]
        let cases = [
            ("/orders",    true),
            ("/orders/7",  true),
            ("orders",     false),
            ("/orders/",   false),
            ("/",          false),
            ("//orders",   false),
            ("/a/../b",    false),
            ("/a;b",       false),
            ("/a%2fb",     false),
            ("/a?b",       false),
            ("/a b",       false),
        ];
        for (text, expected) in cases {
            assert_eq!(path_to_write(text).is_ok(), expected, "{text}");
        }
    }
}
