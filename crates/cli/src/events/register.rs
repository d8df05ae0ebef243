//! `events register`: creates or updates a stream of security events, and proves that its events
//! arrive at the filter.
//!
//! The order matters. The filters' counters are read first: some transmitters send a verification
//! event as soon as they have a stream, and that event is proof too.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use impersonation_core::secret::{Digest, Secret};
use impersonation_issuer::issuer::EVENT_TYPES;

use super::filters::{Counts, Filters};
use super::report::Report;
use super::transmitter::{Stream, Transmitter, Wanted};
use super::{Parties, discover};
use crate::duration::duration;
use crate::http::base_address;
use crate::{Failure, Verdict, text_in};

/// The pause between two looks at the counters.
const PERIOD: Duration = Duration::from_millis(250);

/// More than any header that a server accepts.
const LONGEST_HEADER: usize = 8 << 10;

/// Creates the stream of security events from a transmitter to the filter, or updates it, and waits
/// until a verification event has arrived at the filter.
///
///     (umask 077; printf 'Bearer %s' "$(openssl rand -hex 32)" > push.header)
///     impersonation-filter events register --issuer https://auth.example.com \
///       --endpoint https://gateway.example.com/api/security-events \
///       --token-file transmitter.token --authorization-file push.header --no-verification
///     # Add what it prints to the filter's configuration. Then:
///     impersonation-filter events register --issuer https://auth.example.com \
///       --endpoint https://gateway.example.com/api/security-events \
///       --token-file transmitter.token --authorization-file push.header \
///       --metrics http://10.0.0.1:9902 --metrics http://10.0.0.2:9902
///
/// The command can be repeated: it updates the stream that pushes to this endpoint. It prints the
/// SHA-256 of the header for `authorization_sha256`, and no secret.
///
/// Exit status: 0 the stream is enabled, and a verification event has arrived (or was not wanted),
/// 1 the stream is there, and something is wrong, 2 there is no such stream, or nobody knows.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    #[command(flatten)]
    parties: Parties,
    /// The filter's endpoint as the transmitter reaches it, such as
    /// https://gateway.example.com/api/security-events.
    #[arg(long, value_name = "URL", value_parser = endpoint)]
    endpoint: String,
    /// A file with the whole `Authorization` header that the transmitter is to send with each
    /// event, such as `Bearer` with a random text. Without it the transmitter sends none.
    #[arg(long, value_name = "FILE")]
    authorization_file: Option<PathBuf>,
    /// Enables the stream if it is paused or disabled.
    #[arg(long)]
    enable: bool,
    /// Asks for no verification event, because the filter does not know the transmitter yet.
    #[arg(long, conflicts_with = "metrics", required_unless_present = "metrics")]
    no_verification: bool,
    /// The longest time to wait for the verification event.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "180s")]
    within: Duration,
}

fn endpoint(text: &str) -> Result<String, String> {
    base_address(text).map(|_| text.to_owned())
}

pub(super) fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let Arguments { parties, endpoint, .. } = arguments;
    let authorization = match &arguments.authorization_file {
        Some(file) => Some(header_in(file)?),
        None => None,
    };
    let filters = parties.filters()?;
    let before = filters.read()?;
    filters.know_the_sender(&before)?;
    let (transmitter, streams) = discover(parties)?;
    if !transmitter.can_push() {
        return Err(Failure("the transmitter does not push events (RFC 8935)".to_owned()));
    }
    if !filters.is_empty() {
        transmitter.can_verify()?;
    }
    let wanted = Wanted { endpoint, authorization: authorization.as_ref(), events: &EVENT_TYPES };
    let stream = match parties.choose(&streams, Some(endpoint))? {
        Some(stream) => transmitter.update(stream, &wanted)?,
        None => transmitter.create(&wanted)?,
    };
    let mut report = Report::of(&transmitter, &parties.issuer, &stream);
    let digest = |header: &Secret<String>| Digest::of(header.expose().as_bytes()).to_hex();
    report.set_authorization(authorization.as_ref().map(digest));
    if !stream.pushes_to(endpoint) {
        report.problem("the stream does not push its events to the endpoint");
    }
    if authorization.is_none() {
        report.note(
            "the transmitter sends no Authorization header: only signatures protect the endpoint",
        );
    }
    // From here on the stream is there, so a failure is a problem of the stream.
    if let Err(Failure(told)) =
        prove(arguments, &transmitter, &stream, &filters, &before, &mut report)
    {
        report.problem(told);
    }
    let holds = report.conclude();
    let mut out = io::stdout().lock();
    match parties.json {
        true => writeln!(out, "{}", report.to_json())?,
        false => write!(out, "{report}")?,
    }
    Ok(if holds { Verdict::Fine } else { Verdict::Problems })
}

/// Proves that the stream is enabled and that its events arrive.
fn prove(
    arguments: &Arguments,
    transmitter: &Transmitter,
    stream: &Stream,
    filters: &Filters,
    before: &[(&str, Counts)],
    report: &mut Report,
) -> Result<(), Failure> {
    let mut status = transmitter.status(stream)?;
    if arguments.enable && status.as_ref().is_some_and(|status| !status.is_enabled()) {
        transmitter.enable(stream)?;
        status = transmitter.status(stream)?;
    }
    report.set_status(status);
    if arguments.no_verification {
        report.note("no verification event was asked for: nobody knows if events arrive");
        return Ok(());
    }
    let began = Instant::now();
    let until = began.checked_add(arguments.within).unwrap_or(began);
    let state = state()?;
    let mut ask_at = Some(began);
    loop {
        if ask_at.is_some_and(|at| at <= Instant::now()) {
            ask_at = match transmitter.verify(stream, &state) {
                Ok(later) => later.and_then(|later| Instant::now().checked_add(later)),
                // Some transmitters wait for the filter's answer to the event.
                Err(Failure(told)) => {
                    let refused = refused_meanwhile(&filters.read()?, before);
                    return Err(Failure(format!("{told}{refused}")));
                }
            };
        }
        let now = filters.read()?;
        report.set_filters(&now);
        let arrived = |((_, now), (_, before)): (&(&str, Counts), &(&str, Counts))| {
            now.verifications() > before.verifications()
        };
        if now.iter().zip(before).any(arrived) {
            report.set_verified(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(Failure(match ask_at {
                Some(_) => "the transmitter sends no verification event now: try again later, or give a longer \
                            --within"
                    .to_owned(),
                None => not_arrived(arguments, &now, before),
            }));
        }
        sleep(PERIOD);
    }
}

/// Describes what the filters saw in place of the verification event.
fn not_arrived(arguments: &Arguments, now: &[(&str, Counts)], before: &[(&str, Counts)]) -> String {
    let told = match &*refused_meanwhile(now, before) {
        "" => ", and the filters have refused none: look for the request in Envoy's access log, and in the \
               transmitter's log"
            .to_owned(),
        refused => refused.to_owned(),
    };
    let seconds = arguments.within.as_secs();
    format!("no verification event has arrived within {seconds} s{told}")
}

/// Describes which events the filters have refused, or nothing.
fn refused_meanwhile(now: &[(&str, Counts)], before: &[(&str, Counts)]) -> String {
    let refused = now.iter().zip(before).flat_map(|((at, now), (_, before))| {
        let refused = now.refused_since(before);
        refused.into_iter().map(move |(reason, count)| format!("{at} refused {count} ({reason})"))
    });
    let refused: Vec<_> = refused.collect();
    match refused.is_empty() {
        true => String::new(),
        false => format!(
            "; meanwhile {}: docs/operations.md says what each reason means",
            refused.join(", ")
        ),
    }
}

/// Reads the `Authorization` header for the transmitter: one line of visible characters and spaces
/// (RFC 9110 §5.5).
fn header_in(file: &Path) -> Result<Secret<String>, Failure> {
    let text = text_in(file)?;
    let header = text.trim();
    let fits = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    match !header.is_empty() && header.len() < LONGEST_HEADER && header.bytes().all(fits) {
        true => Ok(Secret::new(header.to_owned())),
        false => Err(Failure::new(
            file.display(),
            "expected the Authorization header, such as `Bearer` with a random text, and nothing else",
        )),
    }
}

/// Makes the `state` of the verification event, by which the transmitter's log can be searched.
fn state() -> Result<String, Failure> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| Failure::new("randomness", error))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
