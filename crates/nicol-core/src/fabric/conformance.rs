//! The suite that both worlds pass.
