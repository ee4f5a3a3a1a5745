//! Workloads and the client driver.
