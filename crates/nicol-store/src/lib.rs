//! Nicol's data structures.
