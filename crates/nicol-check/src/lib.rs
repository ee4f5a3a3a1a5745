//! Checkers: they see histories and nothing else.
