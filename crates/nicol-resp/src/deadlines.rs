//! Commands that read or change a key's deadline, as the procedure executes them.

use super::encode::Reply;
use super::expiry::{Expiry, IF_ANY, IF_EARLIER, IF_LATER, IF_NONE};
use super::plan::Arg;
use super::procedure::{Stop, Work};
use super::record;

impl<'t> Work<'t> {
    /// EXPIRE and its kin; `how` is the conditions and an expiry.
    pub(super) fn expire(
        &mut self,
        key: &Arg<'t>,
        how: &[u8],
        reply: &mut Reply<'_>,
    ) -> Result<(), Stop> {
        let (&flags, expiry) = how.split_first().ok_or(Stop::Malformed)?;
        let expiry = Expiry::parse(expiry).ok_or(Stop::Malformed)?;
        let slot = self.slot(key)?;
        let current = self.slots[slot].expires;
        let deadline = expiry.deadline(self.plan.now, current).ok_or(Stop::Malformed)?;
        let set = |flag: u8| flags & flag != 0;
        let refused = self.slots[slot].value.is_none()
            || set(IF_NONE) && current.is_some()
            || set(IF_ANY) && current.is_none()
            // No deadline is later than any.
            || set(IF_LATER) && current.is_none_or(|current| deadline <= current)
            || set(IF_EARLIER) && current.is_some_and(|current| deadline >= current);
        if !refused {
            self.move_deadline(slot, Some(deadline))?;
        }
        reply.integer(i64::from(!refused));
        Ok(())
    }

    /// TTL and its kin; `unit` is how to tell it.
    pub(super) fn ttl(
        &mut self,
        key: &Arg<'t>,
        unit: &[u8],
        reply: &mut Reply<'_>,
    ) -> Result<(), Stop> {
        let [seconds, absolute] = *unit else { return Err(Stop::Malformed) };
        let slot = self.slot(key)?;
        let time = match (&self.slots[slot].value, self.slots[slot].expires) {
            (None, _) => -2,
            (Some(_), None) => -1,
            (Some(_), Some(deadline)) => {
                let time = if absolute != 0 { deadline } else { deadline - self.plan.now };
                // Rounded as Redis rounds, not down.
                if seconds != 0 { time.saturating_add(500) / 1_000 } else { time }
            }
        };
        reply.integer(time);
        Ok(())
    }

    pub(super) fn persist(&mut self, key: &Arg<'t>, reply: &mut Reply<'_>) -> Result<(), Stop> {
        let slot = self.slot(key)?;
        let had = self.slots[slot].expires.is_some();
        if had {
            self.move_deadline(slot, None)?;
        }
        reply.integer(i64::from(had));
        Ok(())
    }

    /// GETEX; `wrong` is what is wrong with its time, if the key is there.
    pub(super) fn get_ex(
        &mut self,
        key: &Arg<'t>,
        expiry: &[u8],
        wrong: Option<&[u8]>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Stop> {
        let expiry = Expiry::parse(expiry).ok_or(Stop::Malformed)?;
        let slot = self.slot(key)?;
        if let Some(text) = wrong.filter(|_| self.slots[slot].value.is_some()) {
            reply.error(text);
            return Ok(());
        }
        self.answer(slot, reply)?;
        let current = self.slots[slot].expires;
        let deadline = expiry.deadline(self.plan.now, current);
        if self.slots[slot].value.is_some() && deadline != current {
            self.move_deadline(slot, deadline)?;
        }
        Ok(())
    }

    /// Rewrites a row without what has expired; answers the next deadline in it, or 0.
    pub(super) fn reap(&mut self, row: &Arg<'t>, reply: &mut Reply<'_>) -> Result<(), Stop> {
        let key = row.row.ok_or(Stop::Malformed)?;
        let entry = self.txn.find(key).ok_or(Stop::Malformed)?;
        let mut next = 0;
        let mut over = false;
        for pair in record::pairs(self.txn.value(entry).unwrap_or_default()) {
            let pair = pair?;
            over |= pair.is_over(self.plan.now);
            if let Some(deadline) = pair.expires.filter(|_| !pair.is_over(self.plan.now)) {
                next = if next == 0 { deadline } else { deadline.min(next) };
            }
        }
        if over {
            self.reaped.push(entry);
        }
        reply.integer(next);
        Ok(())
    }

    /// Gives a key another deadline; its value is written again with it.
    fn move_deadline(&mut self, slot: usize, deadline: Option<i64>) -> Result<(), Stop> {
        self.spend(self.slots[slot].value.as_ref().map_or(0, |value| value.len()))?;
        let value = self.slots[slot].value.take();
        self.replace(slot, value, deadline)
    }
}
