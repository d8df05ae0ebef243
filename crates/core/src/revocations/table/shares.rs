//! Whose entries they are, and what becomes of those that are too many.

use super::super::entry::{End, Mask, Name, Owner};
use super::format::{self, Entry};
use super::{OWNED, SHARE, Table, Uptime};

/// Whose entries have no share.
pub(super) const OPERATORS: u16 = 0;

impl Table {
    /// Until when all of an owner's would have ended if its share were to get room for one more; `None` as long as it
    /// has room.
    pub(crate) fn cut_off_for_room(&self, owner: &Owner) -> Option<End> {
        let everything = owner.everything();
        let named = (everything.mask(), everything.name(&self.key));
        let owner = number(self.owners.iter().position(|known| *known == named)?);
        let count = self.entries.iter().filter(|entry| format::owner(entry) == owner).count();
        if count < SHARE { None } else { self.older_half(owner) }
    }

    /// The number of an owner, who gets one with the first entry.
    pub(super) fn owner(&mut self, owner: Option<&Owner>) -> u16 {
        let Some(owner) = owner else { return OPERATORS };
        let everything = owner.everything();
        self.owner_named(everything.mask(), everything.name(&self.key))
    }

    pub(super) fn owner_named(&mut self, mask: Mask, name: Name) -> u16 {
        let known = self.owners.iter().position(|known| *known == (mask, name));
        number(known.unwrap_or_else(|| {
            self.owners.push((mask, name));
            self.owners.len().saturating_sub(1)
        }))
    }

    /// Who owns an entry: the revocation of all that is theirs. `None` for an operator's.
    pub(super) fn owner_of(&self, entry: &Entry) -> Option<(Mask, Name)> {
        self.named(format::owner(entry))
    }

    fn named(&self, owner: u16) -> Option<(Mask, Name)> {
        self.owners.get(usize::from(owner.checked_sub(1)?)).copied()
    }

    /// Makes the older half of a share that is used up its owner's cut-off, and of the largest if all of them together
    /// are used up. Whether it did.
    pub(super) fn keep_to_shares(&mut self, uptime: Uptime) -> bool {
        let mut did = false;
        while let Some(owner) = self.too_large() {
            let Some(end) = self.older_half(owner) else { break };
            self.cut_owner_off(owner, end, uptime);
            did = true;
        }
        did
    }

    /// The owner with the most entries, if these or those of all owners are too many.
    fn too_large(&self) -> Option<u16> {
        if self.owners.is_empty() {
            return None;
        }
        let mut counts = vec![0_usize; self.owners.len()];
        for entry in &self.entries {
            let place = format::owner(entry).checked_sub(1).map(usize::from);
            if let Some(count) = place.and_then(|place| counts.get_mut(place)) {
                *count = count.saturating_add(1);
            }
        }
        let all: usize = counts.iter().sum();
        let (largest, count) = counts.iter().enumerate().max_by_key(|(_, count)| **count)?;
        (*count > SHARE || all > OWNED && *count > 1).then(|| number(largest))
    }

    /// Until when the older half of an owner's entries ends what it ends, but for its cut-off; `None` if there is no
    /// other.
    fn older_half(&self, owner: u16) -> Option<End> {
        let (_, cut_off) = self.named(owner)?;
        let mut ends: Vec<_> = self
            .entries
            .iter()
            .filter(|entry| format::owner(entry) == owner && format::name(entry) != cut_off)
            .map(format::end)
            .collect();
        if ends.is_empty() {
            return None;
        }
        let half = ends.len() / 2;
        let (older, last, _) = ends.select_nth_unstable_by_key(half, |end| end.time);
        Some(older.iter().fold(*last, |last, end| last.max(*end)))
    }

    fn cut_owner_off(&mut self, owner: u16, end: End, uptime: Uptime) {
        let Some((mask, cut_off)) = self.named(owner) else { return };
        self.put(&cut_off, end, owner, uptime);
        self.note_kind(mask, end, uptime);
        self.entries.retain(|entry| {
            format::owner(entry) != owner
                || format::name(entry) == cut_off
                || !format::end(entry).is_within(end)
        });
    }

    /// Forgets entries of an owner that its cut-off ends as well.
    pub(super) fn forget_covered(&mut self, owner: &Owner) {
        let Some(end) = self.find(&owner.everything().name(&self.key)) else { return };
        let owner = self.owner(Some(owner));
        self.cut_owner_off(owner, end, 0);
    }

    /// Forgets owners that have no entry any more.
    pub(super) fn forget_owners(&mut self) {
        let mut owners = Vec::new();
        let mut numbers = vec![OPERATORS; self.owners.len()];
        for entry in &mut self.entries {
            let Some(place) = format::owner(entry).checked_sub(1).map(usize::from) else {
                continue;
            };
            let (Some(new), Some(named)) = (numbers.get_mut(place), self.owners.get(place)) else {
                continue;
            };
            if *new == OPERATORS {
                owners.push(*named);
                *new = number(owners.len().saturating_sub(1));
            }
            format::set_owner(entry, *new);
        }
        self.owners = owners;
    }
}

/// Of the owner in this place: none has that of the operators.
fn number(place: usize) -> u16 {
    u16::try_from(place.saturating_add(1)).unwrap_or(OPERATORS)
}
