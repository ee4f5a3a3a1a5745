//! The live world: pinned polling threads and transports.
