//! A bounded memory of what was verified, by the token's hash: never the token.

use std::collections::{HashMap, VecDeque};

use crate::host::UnixTime;
use crate::secret::Digest;

/// Values that are good until a time each. When it is full the one that came first goes. One that was remembered
/// in the future was so before the clock was set back, and is not good any more.
#[derive(Debug)]
pub(super) struct ExpiringCache<V> {
    capacity: usize,
    values: HashMap<Digest, Entry<V>>,
    arrivals: VecDeque<Digest>,
}

#[derive(Debug)]
struct Entry<V> {
    since: UnixTime,
    until: UnixTime,
    value: V,
}

impl<V: Clone> ExpiringCache<V> {
    /// An empty cache for `capacity` values.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, values: HashMap::new(), arrivals: VecDeque::new() }
    }

    /// The value, if it is still good.
    pub(super) fn get(&self, key: &Digest, now: UnixTime) -> Option<V> {
        let good = |entry: &&Entry<V>| now < entry.until && !entry.since.is_ahead_of(now);
        self.values.get(key).filter(good).map(|entry| entry.value.clone())
    }

    /// Remembers a value, from `since` on.
    pub(super) fn insert(&mut self, key: Digest, since: UnixTime, until: UnixTime, value: V) {
        if self.values.insert(key, Entry { since, until, value }).is_none() {
            self.arrivals.push_back(key);
        }
        if self.arrivals.len() > self.capacity
            && let Some(first) = self.arrivals.pop_front()
        {
            self.values.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(name: &str) -> Digest {
        Digest::of(name.as_bytes())
    }

    #[test]
    fn a_value_is_good_until_its_time() {
        let mut cache = ExpiringCache::new(2);
        cache.insert(key("a"), UnixTime::default(), UnixTime::from_millis(10), 1);
        assert_eq!(cache.get(&key("a"), UnixTime::from_millis(9)), Some(1));
        assert_eq!(cache.get(&key("a"), UnixTime::from_millis(10)), None);
        assert_eq!(cache.get(&key("b"), UnixTime::from_millis(9)), None);
    }

    #[test]
    fn a_value_from_before_the_clock_was_set_back_is_not_good() {
        let mut cache = ExpiringCache::new(1);
        let hour = UnixTime::from_millis(3_600_000);
        cache.insert(key("a"), hour, hour.after(Duration::from_secs(10)), 1);
        assert_eq!(cache.get(&key("a"), hour.before(Duration::from_secs(1))), Some(1));
        assert_eq!(cache.get(&key("a"), hour.before(Duration::from_secs(6))), None);
    }

    #[test]
    fn it_never_holds_more_than_its_capacity() {
        let mut cache = ExpiringCache::new(2);
        let late = UnixTime::from_millis(10);
        for name in ["a", "b", "a", "c"] {
            cache.insert(key(name), UnixTime::default(), late, name);
        }
        let held = ["a", "b", "c"].map(|name| cache.get(&key(name), UnixTime::default()));
        assert_eq!(held, [None, Some("b"), Some("c")]);
        assert_eq!(cache.arrivals.len(), cache.values.len());
    }
}
