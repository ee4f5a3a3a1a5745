//! What the engines of a simulated cluster share: its hardware, its state, and what it was told.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use nicol_core::engine::Tuning;
use nicol_core::ids::{EngineId, NodeId, Side};
use nicol_core::memory::RegionTable;
use nicol_core::units::Nanos;
use nicol_core::view::View;

use crate::doorbells::Doorbells;
use crate::hw::NodeModel;
use crate::state::State;
use crate::trace::HardwareTrace;

/// Spare frame buffers that a cluster keeps: about what is under way at once under load.
const BUFFERS_MAX: usize = 8_192;
/// A buffer that grew beyond this is freed instead of kept.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// The parts of a simulated cluster that its engines share.
#[derive(Debug)]
pub struct Shared {
    pub(crate) view: View,
    /// By node. Those of one profile share one.
    models: Vec<Rc<NodeModel>>,
    pub(crate) tuning: Tuning,
    pub(crate) unreliable: bool,
    pub(crate) tables: Vec<Rc<RegionTable>>,
    pub(crate) engines: Vec<EngineId>,
    pub(crate) now: Cell<Nanos>,
    pub(crate) state: RefCell<State>,
    pub(crate) doorbells: RefCell<Doorbells>,
    /// After how long engines learn of crashes and restarts of other nodes, if anybody tells them.
    pub(crate) detect_after: Option<Nanos>,
    /// Whether the log devices keep what is written. Only crashes ask for it.
    pub(crate) keeps_content: bool,
    /// Whether frames between nodes wait on the wire until they are released.
    pub(crate) holds_frames: bool,
    /// Whether a frame may take its node's link as soon as it is known when it has crossed to the
    /// NIC. Where faults are drawn, or a frame may be stopped in between, each waits for its turn.
    pub(crate) links_at_once: bool,
    /// See [`SimConfig::holds_completions`](crate::SimConfig::holds_completions).
    pub(crate) holds_completions: bool,
    /// Broken on purpose: no write is ever synced.
    pub(crate) syncs_nothing: bool,
    /// Broken on purpose: a crash leaves every write on the medium that was submitted.
    pub(crate) keeps_unsynced: bool,
    /// Broken on purpose: frames of and for earlier incarnations are taken.
    pub(crate) ignores_fences: bool,
    /// The trace of the run, if it is recorded.
    pub(crate) trace: Option<HardwareTrace>,
    buffers: RefCell<Vec<Vec<u8>>>,
}

impl Shared {
    pub(crate) fn new(
        view: View,
        models: Vec<Rc<NodeModel>>,
        tuning: Tuning,
        unreliable: bool,
        state: State,
    ) -> Self {
        let engines = view.engine_ids().collect();
        let tables = view.node_ids().map(|_| Rc::default()).collect();
        Self {
            models,
            unreliable,
            tables,
            engines,
            now: Cell::new(Nanos::ZERO),
            state: RefCell::new(state),
            doorbells: RefCell::default(),
            detect_after: None,
            keeps_content: false,
            holds_frames: false,
            links_at_once: false,
            holds_completions: false,
            syncs_nothing: false,
            keeps_unsynced: false,
            ignores_fences: false,
            trace: None,
            buffers: RefCell::default(),
            view,
            tuning,
        }
    }

    /// The hardware of `node`.
    #[inline]
    pub(crate) fn model(&self, node: NodeId) -> &NodeModel {
        &self.models[node.index()]
    }

    /// The same as a shared pointer, for callers that keep it.
    pub(crate) fn model_of(&self, node: NodeId) -> Rc<NodeModel> {
        self.models[node.index()].clone()
    }

    /// The memory in which an engine works: stand-ins for NIC engines work in the host's.
    pub(crate) fn memory_of(&self, engine: EngineId) -> Side {
        self.model(engine.node).memory_of(engine)
    }

    /// The indices of the engines of a side.
    pub(crate) fn engines_of(&self, node: NodeId, side: Side) -> Range<usize> {
        let first = EngineId { node, side, core: 0 };
        let first = self.view.index_of(first).unwrap_or_default();
        first..first + self.view.engines(node, side)
    }

    /// An empty buffer for a frame, a used one if there is any.
    pub(crate) fn frame_buffer(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps a frame's buffer for another frame.
    pub(crate) fn recycle_frame(&self, mut frame: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() < BUFFERS_MAX && frame.capacity() <= BUFFER_BYTES_MAX {
            frame.clear();
            buffers.push(frame);
        }
    }
}
