//! A run that fails or is stopped leaves nothing running: no Envoy, no etcd, no machine.

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::etcd::Etcd;
use testkit::network::{in_a_hub, three_machines};
use testkit::{process, wait_for};

use crate::faults::Fault;
use crate::leader::{Tally, two_gateways, under_load};
use crate::watch::Timeline;

/// The environment variable that says what a run does once all its programs are started. All of
/// them inherit it.
const THEN: &str = "CHAOS_THEN";
/// The environment variable that marks the programs of one run.
const MARK: &str = "CHAOS_MARK";

const NAME: &str = "stopped::a_run_with_every_program_started";

/// The run that the other test starts. Without its environment variable it does nothing.
#[test]
fn a_run_with_every_program_started() {
    let Some(then) = std::env::var_os(THEN) else { return };
    in_a_hub(NAME, || {
        let machines = three_machines();
        let nodes = Etcd::start_on(&machines);
        let gateways = two_gateways(&nodes);
        let (timeline, tally) = (Timeline::new(), Tally::default());
        let began = Instant::now();
        under_load(&nodes, &gateways, &timeline, &tally, || {
            wait_for("the load", || timeline.all_succeeded_since(began).then_some(()));
            // Leaves one node stopped, which only SIGKILL ends, and one node cut off.
            nodes[0].stop();
            Fault::CutFromAll.begin(&machines[1], &nodes[1]);
            println!("\neverything is there");
            assert_ne!(then, "fail", "it fails as it was told to");
            std::thread::sleep(Duration::from_secs(3600));
        });
    });
}

/// The way in which a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The run panics under load.
    Panic,
    /// The run's process gets this signal.
    Signal(&'static str),
    /// The run's whole process group gets this signal at once, as from a terminal.
    SignalToAll(&'static str),
    /// The `make` that started it gets this signal.
    SignalToMake(&'static str),
}

/// A run in progress.
struct Run {
    process: Child,
    mark: String,
}

impl Run {
    fn start(end: End) -> Self {
        let mark = format!("{:016x}", fastrand::u64(..));
        let run = std::env::current_exe().unwrap();
        let arguments = ["--exact", NAME, "--nocapture"];
        let mut command = if matches!(end, End::SignalToMake(_)) {
            let mut make = Command::new("make");
            make.args(["--silent", "--file", "-"]).stdin(Stdio::piped());
            make
        } else {
            let mut command = Command::new(&run);
            command.args(arguments).stdin(Stdio::null());
            command
        };
        let then = if end == End::Panic { "fail" } else { "wait" };
        command.env(THEN, then).env(MARK, &mark).process_group(0);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        if let Some(mut makefile) = process.stdin.take() {
            // make starts the run by a shell, as in most recipes.
            let recipe = format!("run:\n\t{} {}; true\n", run.display(), arguments.join(" "));
            makefile.write_all(recipe.as_bytes()).unwrap();
        }
        let mut run = Self { process, mark };
        let mut lines = BufReader::new(run.process.stdout.take().unwrap()).lines();
        let is_there = lines.any(|line| line.unwrap() == "everything is there");
        assert!(is_there, "{end:?}: it did not come so far");
        run
    }

    /// Returns the command lines of all programs of the run that are still there.
    fn programs(&self) -> Vec<String> {
        let mark = format!("{MARK}={}", self.mark);
        let all = fs::read_dir("/proc").unwrap().filter_map(|process| {
            let process = process.ok()?.path();
            let environment = fs::read(process.join("environ")).ok()?;
            environment.split(|byte| *byte == 0).find(|one| *one == mark.as_bytes())?;
            let command = fs::read(process.join("cmdline")).ok()?;
            let words = command.split(|byte| *byte == 0).map(String::from_utf8_lossy);
            Some(words.collect::<Vec<_>>().join(" "))
        });
        all.collect()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_run_that_fails_or_is_stopped_leaves_no_process() {
    let ends = [
        End::Panic,
        End::Signal("TERM"),
        End::Signal("INT"),
        End::Signal("KILL"),
        End::SignalToAll("INT"),
        End::SignalToMake("TERM"),
    ];
    for end in ends {
        let mut run = Run::start(end);
        let count = |name: &str| {
            let programs = run.programs();
            programs.iter().filter(|words| words.contains(name)).count()
        };
        // A run that panics may be failing already.
        if end != End::Panic {
            assert_eq!((count("/etcd --name"), count("envoy.json")), (3, 2), "{end:?}");
        }
        let id = run.process.id();
        match end {
            End::Panic => {}
            End::Signal(signal) | End::SignalToMake(signal) => {
                process::send(signal, &id.to_string())
            }
            End::SignalToAll(signal) => process::send(signal, &format!("-{id}")),
        }
        let ended = wait_for("the run to end", || run.process.try_wait().unwrap());
        assert!(!ended.success(), "{end:?}: {ended}");
        let mut left = run.programs();
        let began = Instant::now();
        while !left.is_empty() {
            assert!(began.elapsed() < Duration::from_secs(60), "{end:?}: {left:#?}");
            std::thread::sleep(Duration::from_millis(20));
            left = run.programs();
        }
        println!("{end:?}: nothing is left after {:.1?}", began.elapsed());
    }
}
