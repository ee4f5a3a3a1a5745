//! The boundary between the RESP front and the engines that run its transactions.

pub use nicol_core::commit::{Backend, Done, Request, Response};
