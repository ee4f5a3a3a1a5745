//! What an access point costs in the live world: loops with one and without, for callgrind. The
//! instructions of an addition are those of 20 million less those of 10 million, by 10 million.
//!
//! ```text
//! cargo build --release -p nicol-rt --example access_points
//! for loop in point no-point point-and-local no-point-and-local; do
//!   for additions in 10000000 20000000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!       target/release/examples/access_points $loop $additions 2>&1 | grep Collected
//!   done
//! done
//! ```

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nicol_core::engine::Start;
use nicol_core::fabric::{Fabric, SharedMemory};
use nicol_core::ids::Side;
use nicol_core::view::View;
use nicol_rt::{LiveCluster, LiveConfig};

/// The word that is added to.
static WORD: AtomicU64 = AtomicU64::new(0);
/// Additions still to be made.
static LEFT: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicBool = AtomicBool::new(false);

/// Adds, an access point before each addition. No variable lives across it.
async fn point<F: SharedMemory>(fabric: F) {
    while LEFT.fetch_sub(1, Ordering::Relaxed) > 0 {
        fabric.access().await;
        WORD.fetch_add(1, Ordering::Relaxed);
    }
}

/// The same without an access point.
async fn no_point<F: SharedMemory>(_: F) {
    while LEFT.fetch_sub(1, Ordering::Relaxed) > 0 {
        WORD.fetch_add(1, Ordering::Relaxed);
    }
}

/// Adds, with a counter that lives across the access points: a field of the future.
async fn point_and_local<F: SharedMemory>(fabric: F) {
    for _ in 0..LEFT.load(Ordering::Relaxed) {
        fabric.access().await;
        WORD.fetch_add(1, Ordering::Relaxed);
    }
}

/// The same without an access point: the counter is in a register.
async fn no_point_and_local<F: SharedMemory>(_: F) {
    for _ in 0..LEFT.load(Ordering::Relaxed) {
        WORD.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs a loop on the host engine.
struct Loop(String);

impl Start for Loop {
    fn start<F: Fabric>(&self, fabric: &F) {
        if fabric.here().side == Side::Nic {
            return;
        }
        let (fabric, asked) = (fabric.clone(), self.0.clone());
        fabric.clone().spawn(async move {
            match asked.as_str() {
                "point" => point(fabric).await,
                "no-point" => no_point(fabric).await,
                "point-and-local" => point_and_local(fabric).await,
                _ => no_point_and_local(fabric).await,
            }
            DONE.store(true, Ordering::Release);
        });
    }
}

/// The arguments: which loop, and how many additions.
fn asked() -> Option<(String, u64)> {
    let mut arguments = std::env::args().skip(1);
    let which = arguments.next()?;
    let known = ["point", "no-point", "point-and-local", "no-point-and-local"];
    known.contains(&which.as_str()).then_some((which, arguments.next()?.parse().ok()?))
}

fn main() -> ExitCode {
    let Some((which, additions)) = asked() else {
        eprintln!("give a loop and a number of additions, as in: access_points point 10000000");
        return ExitCode::from(2);
    };
    LEFT.store(additions, Ordering::Relaxed);
    let Ok(view) = View::new(1, 1, 1, 1) else { return ExitCode::from(3) };
    let live = LiveConfig { threads: Some(1), spin: false, ..LiveConfig::new(view) };
    let ran = LiveCluster::launch(&live, Arc::new(Loop(which))).and_then(|cluster| {
        let done = || DONE.load(Ordering::Acquire);
        cluster.run_until(done, Duration::from_millis(1)).and_then(|()| cluster.stop())
    });
    match ran {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(3)
        }
    }
}
