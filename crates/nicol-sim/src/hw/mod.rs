//! Hardware models: what is occupied, for how long, and what it costs a core.

mod card;
mod costs;
mod model;
mod node;
mod resource;

pub use card::{PciePackets, Way};
pub use costs::Costs;
pub use model::NodeModel;
pub use node::{Crossing, Hardware, NodeHardware};
pub use resource::{Alone, PerByte, Resource, Slot, picos};
