//! `events`: the streams of security events that end impersonations (Shared Signals Framework 1.0).
//!
//! A transmitter answers 204 when it is asked for a verification event, and sends the event later
//! (§8.1.4). So the transmitter cannot say that events arrive; only the filter can. The filter
//! counts each event whose signature, audience and `Authorization` are right, and `events` reads
//! these counters from the metrics of each Envoy.

mod filters;
mod register;
mod report;
mod status;
mod transmitter;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use self::filters::Filters;
use self::transmitter::{Stream, Transmitter};
use super::http::{Base, base_address};
use super::{Failure, Verdict};

/// Sets up and looks after a stream of security events (Shared Signals Framework 1.0, push).
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: EventsCommand,
}

#[derive(Debug, Subcommand)]
enum EventsCommand {
    Register(Box<register::Arguments>),
    Status(status::Arguments),
}

/// The transmitter, its stream, and the Envoys that receive the events.
#[derive(Debug, Args)]
struct Parties {
    /// The transmitter's issuer, exactly as it is in its events, such as https://auth.example.com.
    /// Its configuration is at the well-known address of this issuer.
    #[arg(long, value_parser = issuer)]
    issuer: String,
    /// A file with the access token for the transmitter's stream management, `-` for standard
    /// input. Without it the token is read from the variable TRANSMITTER_TOKEN. No argument takes
    /// the token: other users of the machine see arguments.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The id of the stream, if the transmitter has several for this receiver.
    #[arg(long, value_name = "ID")]
    stream: Option<String>,
    /// An address at which an Envoy shows its metrics below /stats/prometheus: its admin interface,
    /// or the metrics listener of envoy.yaml. Repeat the flag for each Envoy that may receive the
    /// events.
    #[arg(long, value_name = "URL", value_parser = base_address)]
    metrics: Vec<Base>,
    /// The place of this transmitter in `impersonations.security_events` of the filter's
    /// configuration; the first one is 0.
    #[arg(long, value_name = "PLACE", default_value_t = 0)]
    sender: usize,
    /// A PEM file with the certificate authorities to trust for all addresses, instead of the
    /// machine's own.
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

impl Parties {
    /// Prepares the requests to the Envoys. Nothing is sent yet.
    fn filters(&self) -> Result<Filters, Failure> {
        Filters::open(&self.metrics, self.sender, self.cacert.as_deref())
    }

    /// Chooses the stream: the named one, or else the one that pushes to `endpoint`, or else the
    /// only one.
    fn choose<'s>(
        &self,
        streams: &'s [Stream],
        endpoint: Option<&str>,
    ) -> Result<Option<&'s Stream>, Failure> {
        let mut fitting = streams.iter().filter(|stream| match (&self.stream, endpoint) {
            (Some(id), _) => stream.stream_id == *id,
            (None, Some(endpoint)) => stream.pushes_to(endpoint),
            (None, None) => true,
        });
        match (fitting.next(), fitting.next(), &self.stream) {
            (None, _, Some(_)) => Err(Failure(format!(
                "the transmitter has no stream with this id for this receiver: {}",
                ids(streams)
            ))),
            (Some(_), Some(_), _) => Err(Failure(format!(
                "the transmitter has several streams for this receiver; --stream names one of {}",
                ids(streams)
            ))),
            (stream, _, _) => Ok(stream),
        }
    }
}

/// Lists the ids of streams, for a message.
fn ids(streams: &[Stream]) -> String {
    let all: Vec<_> = streams.iter().take(20).map(Stream::shown_id).collect();
    if all.is_empty() { "it has none".to_owned() } else { all.join(", ") }
}

/// Reads an issuer: an address that is compared as it is, so that nothing of it is changed.
fn issuer(text: &str) -> Result<String, String> {
    base_address(text).map(|_| text.to_owned())
}

pub(super) fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    match &arguments.command {
        EventsCommand::Register(arguments) => register::run(arguments),
        EventsCommand::Status(arguments) => status::run(arguments),
    }
}

/// Reads the transmitter's configuration and its streams for this receiver.
fn discover(parties: &Parties) -> Result<(Transmitter, Vec<Stream>), Failure> {
    let transmitter = Transmitter::discover(
        &parties.issuer,
        parties.token_file.as_deref(),
        parties.cacert.as_deref(),
    )?;
    let streams = transmitter.streams()?;
    Ok((transmitter, streams))
}
