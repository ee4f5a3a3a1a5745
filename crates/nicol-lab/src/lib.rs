//! Experiments: systems on worlds under workloads, judged.
