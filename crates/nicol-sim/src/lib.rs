//! The simulated world: event kernel, hardware models, faults.
