//! How an engine of a server starts that serves nothing else.

use std::sync::Arc;

use nicol_core::fabric::Fabric;

use super::broken;
use super::server::{Executor, Server};
use super::shared::Shared;

impl<F: Fabric, X: Executor> Server<F, X> {
    /// Starts the part of this engine, which serves nothing else.
    pub fn start(fabric: &F, shared: &Arc<Shared>, executor: X) {
        let server = Self::new(fabric, shared, executor);
        fabric.serve(broken::service(&server));
        server.begin();
    }
}
