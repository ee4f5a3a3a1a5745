//! The boundary between the RESP front and the engines that run its transactions.

pub use nicol_core::serving::{Backend, Done, Request, Response};
