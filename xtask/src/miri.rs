//! `cargo xtask miri`: the tests in which threads share memory, interpreted.
//!
//! Miri interrupts a thread at any access, lets an atomic load return an old value where its
//! ordering allows that, which x86 never shows, and reports data races. In the few places with
//! `unsafe`, the project's own and those of the rings' library, it also checks every value and
//! every pointer.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::finish;

/// The toolchain that has Miri; the project's own is a stable one.
const TOOLCHAIN: &str = "nightly";

/// What Miri looks at besides races and old values.
#[derive(Clone, Copy)]
enum Pointers {
    /// Is every value valid, and does every pointer reach only what it may?
    Checked,
    /// Nothing: there is no `unsafe` in what runs, and with checks the tests of tables take hours.
    Trusted,
}

impl Pointers {
    const fn flags(self) -> &'static str {
        match self {
            Self::Checked => "-Zmiri-tree-borrows",
            Self::Trusted => "-Zmiri-disable-stacked-borrows -Zmiri-disable-validation",
        }
    }
}

/// Vectors as the machine that is interpreted has them: the wide steps of AlNiCo's counters.
const WIDE: &str = "-Ctarget-feature=+avx2";

/// Interpretations of each test, each with another order of threads and other old values.
const SEEDS: &str = "-Zmiri-many-seeds=0..4";

/// Crates and their tests, which take fewer steps under Miri (`nicol_core::rng::test_steps`).
const TESTS: [(&str, Pointers, &[&str]); 4] = [
    (
        "nicol-rt",
        Pointers::Checked,
        &[
            "tests::requests_of_several_threads_come_once_each_and_in_the_order_of_each",
            "tests::no_wake_up_is_lost",
            "tests::frames_of_another_thread_come_whole_and_in_order_and_their_buffers_go_back",
        ],
    ),
    (
        "nicol-store",
        Pointers::Checked,
        &[
            "feature_counters::tests::ranks_are_the_sums_of_the_slides_with_and_without_wide_vectors",
            "feature_counters::tests::the_shortest_queue_of_those_that_tie_is_named",
            "multicore::record::tests::a_state_and_a_value_survive_their_words",
        ],
    ),
    (
        "nicol-core",
        Pointers::Trusted,
        &[
            "chain::attacks::a_pointer_leads_to_its_own_region_or_nowhere",
            "chain::fuzz::tests::inputs_that_are_cut_or_empty_are_tried_too",
            "chain::tests::a_buffer_is_not_reused_while_a_chain_may_read_it",
            "chain::threads::whoever_reads_while_others_install_and_recycle_sees_one_whole_item",
            "exec::tasks::tests::tasks_run_until_they_wait_and_again_when_signalled",
            "memory::buffers::tests::a_posted_buffer_waits_for_the_chains_that_were_under_way",
            "memory::atomic::tests::wide_swaps_reads_and_writes_of_threads_are_atomic",
            "memory::seqlock::tests::writers_are_served_in_order_and_a_reader_waits_among_them",
            "memory::region::tests::a_partial_last_word_keeps_its_neighbours",
        ],
    ),
    (
        "nicol-store",
        Pointers::Trusted,
        &[
            "multicore::arena::tests::places_do_not_overlap_and_come_back",
            "multicore::epochs::tests::the_epoch_waits_for_whoever_is_in_an_earlier_one",
            "multicore::horizon::tests::no_version_is_freed_that_somebody_may_find",
            "multicore::tests::a_record_is_not_used_again_while_a_core_that_has_found_it_may_read_it",
            "multicore::tests::no_version_of_a_key_is_used_twice_while_threads_make_and_take_out",
            "multicore::tests::threads_lose_no_record_and_see_no_other_s",
            "multicore::tests::what_was_located_is_found_in_order_until_it_is_taken_out",
            "host_table::tests::readers_never_miss_a_record_that_is_there",
            "host_table::tests::readers_never_miss_a_record_while_the_table_doubles",
            "host_table::tests::values::readers_find_every_value_while_values_are_moved",
            "nic_index::tests::cores_that_share_it_see_no_old_value_and_never_hold_one_lock_twice",
            "remote_table::tests::addresses::stale_addresses_lose_no_update_while_records_move",
            "remote_table::tests::threads::an_update_is_not_lost_when_its_record_moves",
            "remote_table::tests::threads::readers_and_one_sided_committers_get_along_with_the_owner",
        ],
    ),
];

/// Runs the tests; `once` with one interpretation instead of several. Where there is no Miri, and
/// none can be installed, it says so.
pub fn run(root: &Path, once: bool) -> Result<()> {
    if let Err(error) = provide() {
        println!("Miri is left out, because it cannot be installed: {error:#}");
        return Ok(());
    }
    for (name, pointers, tests) in TESTS {
        let mut miri = rustup(&["run", TOOLCHAIN, "cargo", "miri", "test", "--lib", "-p", name]);
        miri.args(["--", "--exact"]).args(tests).current_dir(root);
        let flags = std::env::var("MIRIFLAGS").unwrap_or_default();
        let seeds = if once { "" } else { SEEDS };
        miri.env("MIRIFLAGS", format!("{} {seeds} {flags}", pointers.flags()));
        if cfg!(target_arch = "x86_64") {
            miri.env("RUSTFLAGS", WIDE);
        }
        let output = miri.stderr(Stdio::inherit()).output().context("cannot start cargo miri")?;
        let output_text = String::from_utf8_lossy(&output.stdout);
        print!("{output_text}");
        ensure!(output.status.success(), "Miri found a fault in {name}");
        let expected = format!("test result: ok. {} passed", tests.len());
        ensure!(
            output_text.contains(&expected),
            "{name}: a test named in xtask/src/miri.rs is gone"
        );
    }
    Ok(())
}

/// Installs the toolchain and its components where they are missing.
fn provide() -> Result<()> {
    let found = rustup(&["run", TOOLCHAIN, "cargo", "miri", "--version"]).output();
    let found = found.context("rustup is needed to find Miri's toolchain")?;
    if found.status.success() {
        return Ok(());
    }
    eprintln!("xtask: installing {TOOLCHAIN} with Miri");
    let mut install = rustup(&["toolchain", "install", TOOLCHAIN, "--profile", "minimal"]);
    finish(install.args(["--component", "miri,rust-src"]))
}

/// A rustup that does not inherit which toolchain runs this task.
fn rustup(args: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command.args(args);
    for inherited in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC", "RUSTDOC"] {
        command.env_remove(inherited);
    }
    command
}
