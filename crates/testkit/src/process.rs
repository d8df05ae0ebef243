//! A program that runs beside a test and ends with it, whether the test returns, panics or is
//! killed, or its starter is killed.
//!
//! A signal to this process ends it without a destructor. So each program has a watchdog: see
//! `scripts/watchdog`.

use std::io::Write as _;
use std::os::unix::process::parent_id;
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::Once;
use std::thread;
use std::time::{Duration, Instant};

use crate::repository;

/// The signal that tells a program to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The program is asked to end, and killed if it still runs after five seconds.
    Asked,
    /// The program is killed at once, as by a power failure.
    Killed,
}

impl Ending {
    const fn signal(self) -> &'static str {
        match self {
            Self::Asked => "TERM",
            Self::Killed => "KILL",
        }
    }
}

/// A running program.
pub struct Process {
    program: Child,
    ending: Ending,
    watchdog: Child,
}

impl Process {
    /// Starts a program.
    pub fn spawn(command: &mut Command, ending: Ending) -> Self {
        end_with_parent();
        let mut watchdog = Command::new(repository().join("scripts/watchdog"))
            .arg(ending.signal())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let program = match command.spawn() {
            Ok(program) => program,
            Err(error) => {
                let _ = watchdog.kill();
                let _ = watchdog.wait();
                panic!("{command:?}: {error}");
            }
        };
        writeln!(watchdog.stdin.as_mut().unwrap(), "{}", program.id()).unwrap();
        Self { program, ending, watchdog }
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.program.id()
    }

    /// Returns the standard input and output, if they are piped.
    pub fn pipes(&mut self) -> &mut Child {
        &mut self.program
    }

    /// Returns the exit status if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.program.try_wait().unwrap()
    }

    /// Sends a signal to the program, such as `STOP`.
    pub fn signal(&mut self, signal: &str) {
        if self.ended().is_none() {
            send(signal, &self.id().to_string());
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ending == Ending::Asked {
            self.signal("TERM");
            let deadline = Instant::now() + Duration::from_secs(5);
            while self.ended().is_none() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
        }
        let _ = self.program.kill();
        let _ = self.program.wait();
        let _ = self.watchdog.kill();
        let _ = self.watchdog.wait();
    }
}

/// Sends a signal to a process, or to a group of processes if the number is negative.
pub fn send(signal: &str, id: &str) {
    let sent = Command::new("kill").args(["-s", signal, "--", id]).status().unwrap();
    assert!(sent.success(), "{signal} to {id}: {sent}");
}

/// Ends this process when its parent has ended. A SIGTERM ends `make` and Cargo, and neither of
/// them passes it on to the tests.
pub(crate) fn end_with_parent() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let parent = parent_id();
        thread::spawn(move || {
            while parent_id() == parent {
                thread::sleep(Duration::from_millis(100));
            }
            eprintln!("whoever started this process has ended");
            process::exit(1);
        });
    });
}
