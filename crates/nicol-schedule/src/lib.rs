//! Scheduling in front of an engine: clients send requests, somebody decides which worker executes
//! each, and the worker replies. [AlNiCo22, overview]
//!
//! | step of the slide "implementation" | what | where |
//! |---|---|---|
//! | 1, 2 | a client writes the data to the host, and the vector to the scheduler | `client.rs`, `features.rs` |
//! | 3 | the scheduler decides, and writes an entry of the worker's queue | `server.rs` (`decide`, `give`), `decision.rs` |
//! | 4 | the worker takes it, once the data is there, and executes the transaction until it commits or refuses | `deposits.rs`, `server.rs` (`work`) |
//! | 5 | it replies to the client; the scheduler learns that it is done | `server.rs` |
//! | feedback | what stood in the way becomes weights and steering | `feedback.rs`, `server.rs` (`feed_back`) |
//!
//! Who decides is a value ([`Kind`]): the card's FPGA, cores of the host, the workers, the clients,
//! or Strife's batches. Scheduling is advice: the engine's concurrency control stays on, so that
//! any decision is serializable. Nothing is lost: a queue that is full refuses, and the client
//! tries again.
//!
//! DEVIATION [AlNiCo22, implementation]: the data is a message to the worker that the client hints
//! at, whose core receives it; in the testbed it is an RDMA WRITE to memory that all workers poll.
//! Behind schedulers on cores, and with `rpc=one-message`, request and vector are one message.
//!
//! DEVIATION [AlNiCo artifact], in five points:
//! - A client's hint is the next worker of an order of its own, not a random one each time.
//! - In the mode `artifact` the scheduler looks at its counters again after 1,024 decisions. The
//!   artifact counts rounds of its polling loop; there is no such loop here.
//! - Requests are messages of the fabric. The artifact finds them by a flag that flips in a slot.
//! - Steered features weigh 90, 89 and so on in every workload. The artifact's build for YCSB
//!   begins at 50.
//! - Weights count aborts only. One build of the artifact counts accesses instead.
#![forbid(unsafe_code)]

mod broken;
mod client;
mod config;
mod decision;
mod deposits;
mod features;
mod feedback;
mod given;
mod messages;
mod server;
mod shared;
mod start;
mod strife;

#[doc(hidden)]
pub use broken::Sabotage;
pub use config::{Completion, Kind, RpcPath, ScheduleConfig};
pub use decision::{OPEN_MAX, Planes, Ranking, Scheduler, Vectors, WORKERS_MAX};
pub use features::{FEATURES, FeatureMap, Features, Plane};
pub use feedback::{Contention, Feedback, Policy, WINDOW, Window};
pub use nicol_store::feature_counters::NONE;
pub use server::{Executor, QUEUE_MAX};
pub use shared::{Shared, Transcripts};
pub use start::{service, start};
pub use strife::{Plan, plan};

pub use client::Client;
pub use messages::is_scheduling;
