//! The experiments of each family of systems.

pub mod commit {
    pub mod experiments;
}
pub mod engine {
    pub mod experiments;
}
pub mod minos {
    pub mod experiments;
}
pub mod offpath {
    pub mod experiments;
}
pub mod prism {
    pub mod experiments;
}
