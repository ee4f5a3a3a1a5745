//! The execution of a chain at its target, the same for every kind of target: it says which memory
//! it touches, and the target says when that may happen.

use std::ops::Range;
use std::sync::Arc;

use super::results::Record;
use super::{CHAIN_BYTES_MAX, Data, Encoded, Primitive, SCRATCH_BASE, SCRATCH_BYTES, Step, Target};
use crate::fabric::FabricError;
use crate::ids::{RKey, Side};
use crate::memory::{AccessError, RegionTable, Registered, SWAP_WORDS_MAX, WORD, halves};

/// An access to a region by whatever executes a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// So many bytes are read.
    Fetch(u64),
    /// So many bytes are written.
    Store(u64),
    /// So many bytes are read and perhaps written, at one instant.
    Atomic(u64),
}

impl Touch {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fetch(_) => "fetch",
            Self::Store(_) => "store",
            Self::Atomic(_) => "atomic",
        }
    }

    pub const fn bytes(self) -> u64 {
        let (Self::Fetch(bytes) | Self::Store(bytes) | Self::Atomic(bytes)) = self;
        bytes
    }
}

/// A target's way to its memory.
#[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
pub trait ChainAccess {
    /// Does a read of several lines look at memory twice, so that a write in between tears it?
    const TEARS: bool = false;

    /// Resolves at the instant at which the first `first` of `len` bytes are read, where reads may
    /// be torn; [`ChainAccess::access`] of all `len` follows for the rest.
    async fn access_first(
        &self,
        _side: Side,
        _at: u64,
        _first: u64,
        _len: u64,
    ) -> Result<(), FabricError> {
        Ok(())
    }

    /// Resolves at the instant at which `touch`, of memory of `side` at offset `at` of its region,
    /// is made: the access follows before anything else happens.
    async fn access(&self, side: Side, at: u64, touch: Touch) -> Result<(), FabricError>;
}

/// Executes the verb or chain `body` and appends its reply to `results`: for a verb the output, for
/// a chain a record per operation.
///
/// Errors: a verb's own; for a chain `Malformed`, or `NoResources` if it cannot be buffered. Then
/// nothing was executed.
pub async fn run<R: ChainAccess>(
    body: &[u8],
    regions: &RegionTable,
    memory: &R,
    results: &mut Vec<u8>,
) -> Result<(), FabricError> {
    let mut chain = Encoded::parse(body).map_err(|_| FabricError::Malformed)?;
    let mut target =
        Execution { regions, memory, scratch: [0; SCRATCH_BYTES], is_chain: chain.is_chain };
    if !chain.is_chain {
        let step = chain.only_step().map_err(|_| FabricError::Malformed)?;
        return target.execute(&step, results).await.map(drop);
    }
    chain.check().map_err(|_| FabricError::Malformed)?;
    if body.len() > CHAIN_BYTES_MAX {
        return Err(FabricError::NoResources);
    }
    let entered = regions.enter()?;
    let mut succeeded = true;
    for _ in 0..chain.count {
        let Ok(step) = chain.next_step() else { break };
        let record = Record::begin(results);
        let ran = if step.conditional && !succeeded {
            None
        } else {
            Some(target.execute(&step, results).await)
        };
        succeeded = record.end(results, ran);
    }
    regions.leave(entered);
    Ok(())
}

/// A verb or chain under way.
struct Execution<'a, R> {
    regions: &'a RegionTable,
    memory: &'a R,
    scratch: [u8; SCRATCH_BYTES],
    /// True if it is a chain. Then it has a scratch, and its results are buffered.
    is_chain: bool,
}

/// The memory of one operation.
struct Space<'a> {
    regions: &'a RegionTable,
    /// The region of its rkey, or why it may not access that. What only touches scratch needs none.
    found: Result<Registered, AccessError>,
    /// [`RegionTable::revocations`] before it was found.
    revocations: u64,
    rkey: RKey,
    writes: bool,
    has_scratch: bool,
}

impl<'a> Space<'a> {
    fn new(regions: &'a RegionTable, rkey: RKey, writes: bool, has_scratch: bool) -> Self {
        let revocations = regions.revocations();
        let found = regions.find(rkey, writes);
        Self { regions, found, revocations, rkey, writes, has_scratch }
    }

    /// The region, unless its key has been taken back since it was found, or a crash has taken it
    /// away: to be asked again after every wait.
    fn region(&self) -> Result<&Registered, AccessError> {
        match &self.found {
            Ok(found) if found.region.is_lost() || self.is_revoked(found) => {
                Err(AccessError::Denied { rkey: self.rkey.0 })
            }
            Ok(found) => Ok(found),
            Err(error) => Err(*error),
        }
    }

    /// Is the key no longer that of the region `found`? It is looked up again only if any key has
    /// been taken back meanwhile.
    fn is_revoked(&self, found: &Registered) -> bool {
        self.regions.revocations() != self.revocations
            && !self
                .regions
                .find(self.rkey, self.writes)
                .is_ok_and(|now| Arc::ptr_eq(&now.region, &found.region))
    }

    /// Checks a range of the region or of the scratch.
    fn check(&self, at: u64, len: u64) -> Result<(), AccessError> {
        match self.scratch_range(at, len)? {
            Some(_) => Ok(()),
            None => self.region()?.region.check(at, len),
        }
    }

    /// The range of the scratch that an address means; `None` if it means the region.
    fn scratch_range(&self, at: u64, len: u64) -> Result<Option<Range<usize>>, AccessError> {
        if !self.has_scratch || !is_scratch(at) {
            return Ok(None);
        }
        if !at.is_multiple_of(WORD as u64) {
            return Err(AccessError::Misaligned { offset: at });
        }
        let (offset, size) = (at - SCRATCH_BASE, SCRATCH_BYTES as u64);
        if len > size - offset {
            return Err(AccessError::OutOfBounds { offset: at, len, size });
        }
        Ok(Some(offset as usize..(offset + len) as usize))
    }
}

fn is_scratch(at: u64) -> bool {
    (SCRATCH_BASE..SCRATCH_BASE + SCRATCH_BYTES as u64).contains(&at)
}

impl<R: ChainAccess> Execution<'_, R> {
    /// Executes one operation: appends its output, and tells whether it was successful. Everything
    /// that can be refused is checked before anything is written.
    async fn execute(
        &mut self,
        step: &Step<'_>,
        results: &mut Vec<u8>,
    ) -> Result<bool, FabricError> {
        let writes = !matches!(step.primitive, Primitive::Read { .. });
        let redirects = step.redirect.is_some_and(|to| !is_scratch(to));
        let space = Space::new(self.regions, step.rkey, writes || redirects, self.is_chain);
        let start = results.len();
        let output = |len: u64| step.redirect.map_or(Ok(()), |to| space.check(to, len));
        let denied = FabricError::AccessDenied;
        let mut succeeded = true;
        match step.primitive {
            Primitive::Read { from, len } => {
                let (at, len) = self.resolve(&space, from, len).await?;
                space.check(at, len.into()).and_then(|()| output(len.into())).map_err(denied)?;
                self.fetch(&space, at, len, results).await?;
            }
            Primitive::Write { to, data } => self.write(&space, to, data, results).await?,
            Primitive::CompareSwap { target, mut swap, compare_at, swap_at } => {
                let (at, _) = self.resolve(&space, target, 0).await?;
                let found = space.region().map_err(denied)?;
                let placed = found.region.check_swap(at, &swap);
                placed.and_then(|()| output(swap.size())).map_err(denied)?;
                let words = swap.words();
                if let Some(from) = compare_at {
                    self.words(&space, from, &mut swap.compare[..words]).await?;
                }
                match swap_at {
                    Some(_) if swap_at == compare_at => swap.swap = swap.compare,
                    Some(from) => self.words(&space, from, &mut swap.swap[..words]).await?,
                    None => {}
                }
                let found = self.reach(&space, at, Touch::Atomic(swap.size())).await?;
                let done = found.region.swap_atomic(at, &swap)?;
                succeeded = done.swapped;
                done.previous[..words].iter().for_each(|word| results.extend(word.to_le_bytes()));
            }
            Primitive::FetchAdd { target, amount } => {
                let (at, _) = self.resolve(&space, target, 0).await?;
                let found = space.region().map_err(denied)?;
                let word = WORD as u64;
                found.region.check(at, word).and_then(|()| output(word)).map_err(denied)?;
                let found = self.reach(&space, at, Touch::Atomic(word)).await?;
                let previous = found.region.add_atomic(at, amount).map_err(denied)?;
                results.extend(previous.to_le_bytes());
            }
            Primitive::Allocate { list, data } => {
                space.region().and_then(|_| output(WORD as u64)).map_err(denied)?;
                let at = self.regions.allocate(list, step.rkey, data.len() as u64)?;
                self.save(&space, at, data).await?;
                results.extend(at.to_le_bytes());
            }
        }
        if let Some(to) = step.redirect {
            self.save(&space, to, &results[start..]).await?;
            results.truncate(start);
        }
        Ok(succeeded)
    }

    async fn write(
        &mut self,
        space: &Space<'_>,
        to: Target,
        data: Data<'_>,
        results: &mut Vec<u8>,
    ) -> Result<(), FabricError> {
        let asked = match data {
            Data::Inline(bytes) => bytes.len() as u32,
            Data::From { len, .. } => len,
        };
        let (at, len) = self.resolve(space, to, asked).await?;
        space.check(at, len.into()).map_err(FabricError::AccessDenied)?;
        match data {
            Data::Inline(bytes) => self.save(space, at, &bytes[..len as usize]).await,
            Data::From { at: from, .. } => {
                let start = results.len();
                self.fetch(space, from, len, results).await?;
                self.save(space, at, &results[start..]).await?;
                results.truncate(start);
                Ok(())
            }
        }
    }

    /// The address that `target` means, and how many of `len` bytes its bound allows.
    async fn resolve(
        &self,
        space: &Space<'_>,
        target: Target,
        len: u32,
    ) -> Result<(u64, u32), FabricError> {
        let mut pointer = [0; 2];
        match target {
            Target::At(at) => return Ok((at, len)),
            Target::Indirect(at) => {
                self.words(space, at, &mut pointer[..1]).await?;
                pointer[1] = u64::from(len);
            }
            Target::Bounded(at) => self.words(space, at, &mut pointer).await?,
        }
        let [at, bound] = pointer;
        if is_scratch(at) {
            // A pointer leads to the same region [PRISM21 3.1]; this finds no region that large.
            let region = space.region().and_then(|found| found.region.check(at, 0));
            region.map_err(FabricError::AccessDenied)?;
        }
        Ok((at, u64::from(len).min(bound) as u32))
    }

    /// Reads words at an address.
    async fn words(
        &self,
        space: &Space<'_>,
        at: u64,
        words: &mut [u64],
    ) -> Result<(), FabricError> {
        let mut bytes = [0; SWAP_WORDS_MAX * WORD];
        let bytes = &mut bytes[..words.len() * WORD];
        self.load(space, at, bytes).await?;
        let (chunks, _) = bytes.as_chunks::<WORD>();
        for (word, chunk) in words.iter_mut().zip(chunks) {
            *word = u64::from_le_bytes(*chunk);
        }
        Ok(())
    }

    /// Appends `len` bytes at an address to `results`, if there is space.
    async fn fetch(
        &self,
        space: &Space<'_>,
        at: u64,
        len: u32,
        results: &mut Vec<u8>,
    ) -> Result<(), FabricError> {
        // Checked before there is a buffer for them: a request cannot ask for any amount of memory.
        space.check(at, len.into()).map_err(FabricError::AccessDenied)?;
        let start = results.len();
        let end = start + len as usize;
        if self.is_chain && end > CHAIN_BYTES_MAX {
            return Err(FabricError::NoResources);
        }
        results.resize(end, 0);
        self.load(space, at, &mut results[start..]).await
    }

    /// Reaches the memory of an operation: the access follows before anything else happens.
    async fn reach<'s>(
        &self,
        space: &'s Space<'_>,
        at: u64,
        touch: Touch,
    ) -> Result<&'s Registered, FabricError> {
        let side = space.region().map_err(FabricError::AccessDenied)?.side;
        self.memory.access(side, at, touch).await?;
        space.region().map_err(FabricError::AccessDenied)
    }

    async fn load(&self, space: &Space<'_>, at: u64, into: &mut [u8]) -> Result<(), FabricError> {
        let len = into.len() as u64;
        if let Some(range) = space.scratch_range(at, len).map_err(FabricError::AccessDenied)? {
            into.copy_from_slice(&self.scratch[range]);
            return Ok(());
        }
        let found = space.region().map_err(FabricError::AccessDenied)?;
        found.region.check(at, len).map_err(FabricError::AccessDenied)?;
        let first = halves(at, len).filter(|_| R::TEARS).unwrap_or_default();
        if first > 0 {
            self.memory.access_first(found.side, at, first as u64, len).await?;
            let found = space.region().map_err(FabricError::AccessDenied)?;
            let read = found.region.read_atomic(at, &mut into[..first]);
            read.map_err(FabricError::AccessDenied)?;
        }
        let found = self.reach(space, at, Touch::Fetch(len)).await?;
        let read = found.region.read_atomic(at + first as u64, &mut into[first..]);
        read.map_err(FabricError::AccessDenied)
    }

    async fn save(&mut self, space: &Space<'_>, at: u64, bytes: &[u8]) -> Result<(), FabricError> {
        let len = bytes.len() as u64;
        if let Some(range) = space.scratch_range(at, len).map_err(FabricError::AccessDenied)? {
            self.scratch[range].copy_from_slice(bytes);
            return Ok(());
        }
        let found = space.region().map_err(FabricError::AccessDenied)?;
        found.region.check(at, len).map_err(FabricError::AccessDenied)?;
        let found = self.reach(space, at, Touch::Store(len)).await?;
        found.region.write_atomic(at, bytes).map_err(FabricError::AccessDenied)?;
        found.region.doorbell().ring();
        Ok(())
    }
}
