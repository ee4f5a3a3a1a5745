//! Every protocol, written once against Fabric.
