//! The shares of callers and clients, and the cut-off of a share that is used up.

use super::super::entry::{End, Mask, Name, Owner};
use super::format::{self, OPERATORS, Row};
use super::{OWNED, SHARE, Table, Uptime, last_of_oldest};

impl Table {
    /// The cut-off of an owner that would make room for one more row; `None` if the share has room.
    pub(crate) fn cut_off_for_room(&self, owner: &Owner) -> Option<End> {
        let everything = owner.everything();
        let named = (everything.mask(), everything.name(&self.key));
        let owner = number(self.owners.iter().position(|known| *known == named)?);
        let count = self.rows.iter().filter(|row| format::owner(row) == owner).count();
        if count < SHARE { None } else { self.older_half(owner) }
    }

    /// The number of an owner. A new owner gets the next number.
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

    /// The owner of a row, named by the revocation of all that it owns; `None` for an operator's
    /// row.
    pub(super) fn owner_of(&self, row: &Row) -> Option<(Mask, Name)> {
        self.named(format::owner(row))
    }

    fn named(&self, owner: u16) -> Option<(Mask, Name)> {
        self.owners.get(usize::from(owner.checked_sub(1)?)).copied()
    }

    /// Turns the older half of a used-up share into the cut-off of its owner. If all shares
    /// together are used up, the largest share makes room. Returns true if rows were merged.
    pub(super) fn keep_to_shares(&mut self, uptime: Uptime) -> bool {
        let mut did = false;
        while let Some(owner) = self.too_large() {
            let Some(end) = self.older_half(owner) else { break };
            self.cut_owner_off(owner, end, uptime);
            did = true;
        }
        did
    }

    /// The owner with the most rows, if its rows or those of all owners are too many.
    fn too_large(&self) -> Option<u16> {
        if self.owners.is_empty() {
            return None;
        }
        let mut counts = vec![0_usize; self.owners.len()];
        for row in &self.rows {
            let place = format::owner(row).checked_sub(1).map(usize::from);
            if let Some(count) = place.and_then(|place| counts.get_mut(place)) {
                *count = count.saturating_add(1);
            }
        }
        let all: usize = counts.iter().sum();
        let (largest, count) = counts.iter().enumerate().max_by_key(|(_, count)| **count)?;
        (*count > SHARE || all > OWNED && *count > 1).then(|| number(largest))
    }

    /// The latest end of the older half of an owner's rows, without its cut-off; `None` if it has
    /// no other rows.
    fn older_half(&self, owner: u16) -> Option<End> {
        let (_, cut_off) = self.named(owner)?;
        let mut ends: Vec<_> = self
            .rows
            .iter()
            .filter(|row| format::owner(row) == owner && format::name(row) != cut_off)
            .map(format::end)
            .collect();
        let half = ends.len() / 2;
        last_of_oldest(&mut ends, half)
    }

    fn cut_owner_off(&mut self, owner: u16, end: End, uptime: Uptime) {
        let Some((mask, cut_off)) = self.named(owner) else { return };
        self.put(format::row(&cut_off, end, owner, uptime));
        self.note_kind(mask, end, uptime);
        self.rows.retain(|row| {
            format::owner(row) != owner
                || format::name(row) == cut_off
                || !format::end(row).is_within(end)
        });
    }

    /// Forgets rows of an owner that its cut-off covers.
    pub(super) fn forget_covered(&mut self, owner: &Owner) {
        let Some(end) = self.find(&owner.everything().name(&self.key)) else { return };
        let owner = self.owner(Some(owner));
        self.cut_owner_off(owner, end, 0);
    }

    /// Forgets owners that have no rows any more.
    pub(super) fn forget_owners(&mut self) {
        let mut owners = Vec::new();
        let mut numbers = vec![OPERATORS; self.owners.len()];
        for row in &mut self.rows {
            let Some(place) = format::owner(row).checked_sub(1).map(usize::from) else {
                continue;
            };
            let (Some(new), Some(named)) = (numbers.get_mut(place), self.owners.get(place)) else {
                continue;
            };
            if *new == OPERATORS {
                owners.push(*named);
                *new = number(owners.len().saturating_sub(1));
            }
            format::set_owner(row, *new);
        }
        self.owners = owners;
    }
}

/// The number of the owner in this place. No owner has the number of the operators.
fn number(place: usize) -> u16 {
    u16::try_from(place.saturating_add(1)).unwrap_or(OPERATORS)
}
