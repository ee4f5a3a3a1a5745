//! Criteria by which alternatives are ranked, and their names.

/// By what alternatives are ranked. [OffPath23 4.2]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Criterion {
    /// More requests a second.
    Throughput,
    /// A shorter time of one request.
    Latency,
    /// Less time of host cores.
    HostCpu,
    /// Fewer bytes on the network.
    Network,
}

/// Their names, in the order of error messages.
pub(super) const CRITERIA: [(&str, Criterion); 4] = [
    ("throughput", Criterion::Throughput),
    ("latency", Criterion::Latency),
    ("host_cpu", Criterion::HostCpu),
    ("network", Criterion::Network),
];

impl Criterion {
    pub fn name(self) -> &'static str {
        CRITERIA.iter().find(|(_, one)| *one == self).map_or("", |(name, _)| *name)
    }
}
