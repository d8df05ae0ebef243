//! A bounded memory of verified tokens. It holds a digest of each token, never the token.

use std::collections::{HashMap, VecDeque};

use crate::host::UnixTime;
use crate::secret::Digest;

/// A bounded map of values, each of which expires. A full cache drops the value that came first. A
/// value that was inserted at a time that now lies ahead is not returned: the clock was set back
/// since.
#[derive(Debug)]
pub(super) struct ExpiringCache<V> {
    capacity: usize,
    values: HashMap<Digest, Expiring<V>>,
    arrivals: VecDeque<Digest>,
}

#[derive(Debug)]
struct Expiring<V> {
    since: UnixTime,
    until: UnixTime,
    value: V,
}

impl<V: Clone> ExpiringCache<V> {
    /// Creates an empty cache for `capacity` values.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, values: HashMap::new(), arrivals: VecDeque::new() }
    }

    /// The value of a key, if it has not expired.
    pub(super) fn get(&self, key: &Digest, now: UnixTime) -> Option<V> {
        let good = |value: &&Expiring<V>| now < value.until && !value.since.is_ahead_of(now);
        self.values.get(key).filter(good).map(|value| value.value.clone())
    }

    /// Inserts a value that holds from `since` until `until`.
    pub(super) fn insert(&mut self, key: Digest, since: UnixTime, until: UnixTime, value: V) {
        if self.values.insert(key, Expiring { since, until, value }).is_none() {
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
    fn a_value_expires_at_its_time() {
        let mut cache = ExpiringCache::new(2);
        cache.insert(key("a"), UnixTime::default(), UnixTime::from_millis(10), 1);
        assert_eq!(cache.get(&key("a"), UnixTime::from_millis(9)), Some(1));
        assert_eq!(cache.get(&key("a"), UnixTime::from_millis(10)), None);
        assert_eq!(cache.get(&key("b"), UnixTime::from_millis(9)), None);
    }

    #[test]
    fn a_value_from_before_the_clock_was_set_back_has_expired() {
        let mut cache = ExpiringCache::new(1);
        let hour = UnixTime::from_millis(3_600_000);
        cache.insert(key("a"), hour, hour.after(Duration::from_secs(10)), 1);
        assert_eq!(cache.get(&key("a"), hour.before(Duration::from_secs(1))), Some(1));
        assert_eq!(cache.get(&key("a"), hour.before(Duration::from_secs(6))), None);
    }

    #[test]
    fn a_cache_never_holds_more_than_its_capacity() {
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
