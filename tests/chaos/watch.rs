//! Records when a majority of etcd can be reached, and when the endpoints work, to compare the two.
//!
//! A majority can be reached while two nodes answer `/health` with 200 to a client in the Envoys'
//! network. Each node is asked every few milliseconds. Both endpoints are called as often, by
//! several callers through each Envoy: one caller that waits for an election must not hide that
//! others are served.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use testkit::client::{Answer, Client};
use testkit::http::Request;

use crate::contest::Step;

/// The pause between two health checks of a node.
const PAUSE: Duration = Duration::from_millis(25);

/// The time within which a healthy node answers.
const PATIENCE: Duration = Duration::from_millis(250);

/// The observations, by time.
pub(crate) struct Timeline {
    /// The health of each node, and the time of each sample.
    health: Mutex<[Vec<(Instant, bool)>; 3]>,
    /// The times at which a mint and an exchange succeeded through each Envoy.
    successes: [Mutex<Vec<Instant>>; 4],
}

/// The names of the series of [`Timeline::successes`].
pub(crate) const SERIES: [&str; 4] = [
    "mints by the first",
    "mints by the second",
    "exchanges by the first",
    "exchanges by the second",
];

impl Timeline {
    pub(crate) fn new() -> Self {
        Self { health: Mutex::default(), successes: Default::default() }
    }

    /// Asks a node for its health, again and again.
    pub(crate) async fn watch(&self, node: usize, address: SocketAddr) {
        let request = Request::get("/health").to_bytes();
        let mut client = Client::new(address);
        loop {
            let asked = Instant::now();
            let answer = client.send_within(&request, PATIENCE).await;
            let well = answer.status == 200;
            // A node that answers was healthy at the end of the request; one that does not was
            // unhealthy from its beginning.
            let at = if well { Instant::now() } else { asked };
            self.health.lock().unwrap()[node].push((at, well));
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub(crate) fn note(&self, step: Step, answer: &Answer) {
        let series = match (step, answer.status) {
            (Step::Mint(envoy), 201) => envoy,
            (Step::Exchange(envoy), 200) => 2 + envoy,
            _ => return,
        };
        self.successes[series].lock().unwrap().push(Instant::now());
    }

    /// Returns true if each series has had a success since then.
    pub(crate) fn all_succeeded_since(&self, since: Instant) -> bool {
        self.successes
            .iter()
            .all(|series| series.lock().unwrap().last().is_some_and(|last| *last > since))
    }

    /// Returns since when a majority is healthy; `None` if none is.
    pub(crate) fn majority_since(&self) -> Option<Instant> {
        self.majorities().pop().filter(|(_, end)| end.is_none()).map(|(begin, _)| begin)
    }

    /// Returns the periods in which a majority was healthy. The last may have no end.
    fn majorities(&self) -> Vec<(Instant, Option<Instant>)> {
        let health = self.health.lock().unwrap();
        let mut samples: Vec<_> = (0..3)
            .flat_map(|node| health[node].iter().map(move |(at, well)| (*at, node, *well)))
            .collect();
        samples.sort_unstable();
        let (mut well, mut periods) = ([false; 3], Vec::new());
        for (at, node, is_well) in samples {
            let had = well.iter().filter(|well| **well).count() >= 2;
            well[node] = is_well;
            let has = well.iter().filter(|well| **well).count() >= 2;
            match (had, has) {
                (false, true) => periods.push((at, None)),
                (true, false) => periods.last_mut().unwrap().1 = Some(at),
                _ => {}
            }
        }
        periods
    }

    /// Returns for each fault how long both endpoints took to work again through each Envoy. The
    /// time counts from the return of the majority, or from the fault if there was a majority
    /// throughout. `until` ends the last period.
    pub(crate) fn recoveries(&self, faults: &[Instant], until: Instant) -> Vec<Duration> {
        let majorities = self.majorities();
        let ends = faults.iter().skip(1).copied().chain([until]);
        let recovery = |(fault, end): (&Instant, Instant)| {
            // Counts from the last return of a majority before the next fault: earlier ones did not
            // last.
            let mut begins = majorities.iter().map(|(begin, _)| *begin);
            let since = begins.rfind(|begin| (*fault..end).contains(begin)).unwrap_or(*fault);
            self.first_success_of_all(since).map_or(Duration::MAX, |back| back - since)
        };
        faults.iter().zip(ends).map(recovery).collect()
    }

    fn first_success_of_all(&self, since: Instant) -> Option<Instant> {
        let first = |series: &Mutex<Vec<Instant>>| {
            series.lock().unwrap().iter().copied().filter(|at| *at >= since).min()
        };
        self.successes.iter().map(first).try_fold(since, |all, first| Some(all.max(first?)))
    }

    /// Returns the longest time without a success of one series while a majority was healthy, and
    /// the name of the series.
    pub(crate) fn longest_silence(&self, until: Instant) -> (Duration, &'static str) {
        let mut longest = (Duration::ZERO, SERIES[0]);
        for (series, name) in self.successes.iter().zip(SERIES) {
            let mut successes = series.lock().unwrap().clone();
            successes.sort_unstable();
            for (begin, end) in self.majorities() {
                let end = end.unwrap_or(until);
                let within = successes.iter().copied().filter(|at| (begin..end).contains(at));
                let marks: Vec<_> = [begin].into_iter().chain(within).chain([end]).collect();
                let gaps = marks.windows(2).map(|pair| pair[1] - pair[0]);
                longest = longest.max((gaps.max().unwrap_or_default(), name));
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_lasts_from_the_last_return_of_a_majority_to_the_first_success_of_every_series() {
        let began = Instant::now();
        let at = |millis: u64| began + Duration::from_millis(millis);
        let timeline = Timeline::new();
        // Two nodes are healthy from 0 to 100, and again from 300 on.
        let samples = [(0, 0, true), (0, 1, true), (100, 1, false), (300, 2, true)];
        for (millis, node, well) in samples {
            timeline.health.lock().unwrap()[node].push((at(millis), well));
        }
        for (series, last) in timeline.successes.iter().zip([320, 330, 310, 750]) {
            series.lock().unwrap().extend([at(50), at(last), at(800)]);
        }
        // One fault with an election, and one that the majority did not notice.
        let recoveries = timeline.recoveries(&[at(90), at(790)], at(900));
        assert_eq!(recoveries, [Duration::from_millis(450), Duration::from_millis(10)]);
        assert_eq!(timeline.majority_since(), Some(at(300)));
        assert!(timeline.all_succeeded_since(at(799)) && !timeline.all_succeeded_since(at(800)));
        // The first and the third series have longer gaps, but the last gap counts only from 300
        // on.
        let (silence, name) = timeline.longest_silence(at(900));
        assert_eq!((silence, name), (Duration::from_millis(490), SERIES[2]));
        assert_eq!(timeline.recoveries(&[at(850)], at(900)), [Duration::MAX]);
    }
}
