//! `events status`: the stream as the transmitter has it, and the events that the filters counted.

use std::io::{self, Write as _};

use clap::Args;

use super::report::Report;
use super::{Parties, discover};
use crate::{Failure, Verdict};

/// Shows a stream of security events: its status, the events that it carries, and what the filters
/// have counted of it.
///
///     impersonation-filter events status --issuer https://auth.example.com \
///       --token-file transmitter.token --metrics http://127.0.0.1:9902
///
/// The access token is one for the transmitter's stream management. It is sent to the addresses
/// that the transmitter's configuration names.
///
/// Exit status: 0 the stream is enabled and carries an event that ends impersonations, 1 it is not
/// or does not, 2 nothing is known: no such stream, or the transmitter or an Envoy does not answer.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    #[command(flatten)]
    parties: Parties,
    /// The filter's endpoint, to choose the stream that pushes there.
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
}

pub(super) fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let Arguments { parties, endpoint } = arguments;
    let filters = parties.filters()?;
    let (transmitter, streams) = discover(parties)?;
    let Some(stream) = parties.choose(&streams, endpoint.as_deref())? else {
        return Err(Failure(
            "the transmitter has no such stream for this receiver: `events register` creates it"
                .to_owned(),
        ));
    };
    let mut report = Report::of(&transmitter, &parties.issuer, stream);
    report.set_status(transmitter.status(stream)?);
    match stream.endpoint() {
        None => report.problem("the stream does not push its events (RFC 8935)"),
        Some(theirs) if endpoint.as_deref().is_some_and(|ours| ours != theirs) => {
            report.problem("the stream pushes its events to another address");
        }
        Some(_) => {}
    }
    let counts = filters.read()?;
    for (at, counts) in &counts {
        if counts.events.is_empty() {
            let place = parties.sender;
            report.problem(format!("{at}: the filter has no sender at place {place}"));
        }
    }
    report.set_filters(&counts);
    let holds = report.conclude();
    let mut out = io::stdout().lock();
    match parties.json {
        true => writeln!(out, "{}", report.to_json())?,
        false => write!(out, "{report}")?,
    }
    Ok(if holds { Verdict::Fine } else { Verdict::Problems })
}
