//! How file replication runs: every choice is a value.

use nicol_core::ids::Side;
use nicol_core::units::{Bytes, Nanos};

use super::broken::{Hooks, Sabotage};
use super::compress::Cost;

/// The path that chunks take. [OffPath23 5.1]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alternative {
    /// The SoC fetches by RDMA (3), compresses and replicates.
    A1,
    /// The SoC fetches by DMA (3*), compresses and replicates.
    A2,
    A3,
    /// Chunks by A2 until the SoC is saturated, the others by A3. [OffPath23 4.2]
    A2AndA3,
}

/// Other work on the hosts' cores. [OffPath23 figure 13]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostLoad {
    Idle,
    /// They share their time with a program that clusters points (streamcluster).
    Busy,
}

/// Configuration of a `linefs` system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineFsConfig {
    pub alternative: Alternative,
    pub host: HostLoad,
    /// Bytes of a chunk at most. [OffPath23 5.1: 16 MB by default, 256 KB by advice 3]
    pub chunk: Bytes,
    /// Chunks of a host engine that are on their way at most: its log has space for so many.
    pub slots: u8,
    /// Of a thousand chunks, those that A3 takes with A2 + A3. Without it A2 takes each chunk for
    /// which the SoC has space.
    pub a3_permille: Option<u16>,
    /// Transfers are posted in pieces of so many bytes; as a whole where there is none. [OffPath23
    /// advices 2 and 3]
    pub segment: Option<Bytes>,
    /// Whether the SoC compresses what A1 and A2 send.
    pub soc_compresses: bool,
    /// Whether the host compresses what A3 sends. The study leaves that out, since it costs host
    /// cores.
    pub host_compresses: bool,
    /// The cost of compression on a core of the SoC.
    pub compression: Cost,
    /// The cost of decompression on a core of the SoC.
    pub decompression: Cost,
    /// Time that a client on another node waits for the answer to a request.
    pub timeout: Nanos,
    #[doc(hidden)]
    pub sabotage: Sabotage,
}

impl LineFsConfig {
    /// Questions of the steps that a planted fault may answer wrongly.
    pub(super) const fn hooks(&self) -> Hooks {
        Hooks(self.sabotage)
    }

    pub const fn paper(alternative: Alternative) -> Self {
        Self {
            alternative,
            host: HostLoad::Idle,
            chunk: Bytes(256 << 10),
            slots: 8,
            a3_permille: None,
            segment: None,
            soc_compresses: true,
            host_compresses: false,
            compression: Cost::COMPRESSION,
            decompression: Cost::DECOMPRESSION,
            timeout: Nanos::from_millis(20),
            sabotage: Sabotage::None,
        }
    }

    /// The way of the `turn`-th chunk of a host engine. Shares are spread evenly.
    pub(super) fn way(&self, turn: u64) -> ChunkWay {
        match (self.alternative, self.a3_permille) {
            (Alternative::A1 | Alternative::A2, _) => ChunkWay::Soc,
            (Alternative::A3, _) => ChunkWay::Host,
            (Alternative::A2AndA3, None) => ChunkWay::SocFirst,
            (Alternative::A2AndA3, Some(share)) => {
                let before = |turn: u64| turn.wrapping_mul(share.into()) / 1_000;
                if before(turn + 1) > before(turn) { ChunkWay::Host } else { ChunkWay::Soc }
            }
        }
    }

    /// Are the chunks packed that this side sends?
    pub(super) const fn packs(&self, side: Side) -> bool {
        match side {
            Side::Nic => self.soc_compresses,
            Side::Host => self.host_compresses,
        }
    }
}

/// The way of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkWay {
    Soc,
    Host,
    /// The SoC unless it is saturated, else the host.
    SocFirst,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_chunks_is_spread_evenly() {
        let paper = LineFsConfig::paper(Alternative::A2AndA3);
        let config = LineFsConfig { a3_permille: Some(250), ..paper };
        let by_host: Vec<bool> = (0..8).map(|turn| config.way(turn) == ChunkWay::Host).collect();
        assert_eq!(by_host, [false, false, false, true, false, false, false, true]);
        let all = LineFsConfig { a3_permille: Some(1_000), ..config };
        assert!((0..8).all(|turn| all.way(turn) == ChunkWay::Host));
    }
}
