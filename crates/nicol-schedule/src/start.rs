//! How an engine's part in scheduling starts: beside its system's own service, or alone.

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Fabric, Service};

use super::broken;
use super::server::{Executor, Server};
use super::shared::Shared;

/// Begins this engine's part in scheduling.
///
/// Returns what takes its messages, to which the engine's system gives those that
/// [are of scheduling](super::is_scheduling). A [planted fault](super::Sabotage) stands before it.
pub fn service<F: Fabric>(
    fabric: &F,
    shared: &Arc<Shared>,
    executor: impl Executor,
) -> Rc<dyn Service> {
    let server = Server::new(fabric, shared, executor);
    server.clone().begin();
    broken::service(&server)
}

/// Starts an engine that serves nothing but scheduling.
pub fn start<F: Fabric>(fabric: &F, shared: &Arc<Shared>, executor: impl Executor) {
    let first = fabric.serve(service(fabric, shared, executor));
    assert!(first, "an engine runs one system");
}
