//! Every system as the laboratory runs it: under its workloads and faults, in both worlds, held to
//! its promise by the checkers, and broken on purpose.

mod abdlock;
mod baselines;
mod binds;
mod client_crashes;
mod delays;
mod drtm_kv;
mod engines;
mod farm_in_prism;
mod late_chains;
mod linefs;
mod minos;
mod minos_crashes;
mod minos_views;
mod pilaf;
mod planned;
mod prism_kv;
mod prism_rs;
mod prism_tx;
mod schedulers;
mod server_crashes;
mod support;
mod xenic;
