//! Prints how many events a second the kernel handles on this core, alone and with engines.

use std::sync::Arc;
use std::time::Instant;

use nicol_core::units::Nanos;
use nicol_sim::kernel::{Event, Kernel};
use nicol_sim::{Profile, checks};

/// Events pending at once: about what a cluster of a few hundred busy cores has.
const PENDING: u32 = 2_000;
const EVENTS: u64 = 20_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut kernel = Kernel::default();
    for number in 0..PENDING {
        kernel.push(Nanos(u64::from(number)), Event::Frame(number));
    }
    let began = Instant::now();
    let mut state = 1u64;
    while kernel.handled() < EVENTS {
        let Some(event) = kernel.pop() else { break };
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        kernel.push(kernel.now() + Nanos(state >> 53), event);
    }
    let rate = EVENTS as f64 / began.elapsed().as_secs_f64() / 1e6;
    println!("kernel alone: {rate:.1} M events/s (digest {:016x})", kernel.digest());

    let profile = Arc::new(Profile::load("liquidio3")?);
    let began = Instant::now();
    let report = checks::echo_load(&profile, Nanos::from_millis(5))?;
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "NIC echo, 192 engines: {:.2} M events/s, {:.2} M messages/s, {:.1} ms simulated in {:.2} s \
         (digest {:016x})",
        report.events as f64 / seconds / 1e6,
        report.stats.messages_received as f64 / seconds / 1e6,
        report.simulated.as_micros_f64() / 1e3,
        seconds,
        report.digest
    );
    Ok(())
}
