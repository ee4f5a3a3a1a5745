//! `nicol bench`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use nicol_bench::bench::{self, BenchConfig, BenchRun, Length, THREADS};
use nicol_bench::binding::Resource;
use nicol_bench::report::{BenchReport, CoreTime, Deferred, Memory};
use nicol_bench::systems;
use nicol_bench::trace::StepCost;
use nicol_bench::workloads::{WORKLOADS, WorkloadSpec};
use nicol_check::history_file::{self, Origin};
use nicol_core::faults::FaultPlan;
use nicol_core::names::did_you_mean;
use nicol_core::units::Nanos;
use nicol_lab::decisions::ensure_plans;
use nicol_lab::experiments::write_atomically_by;
use nicol_rt::LogDevice;
use nicol_workload::driver::CLIENTS_MAX;
use nicol_workload::tpcc::{
    self, Chopping, DeliveryMode, Features, Indices, Shipped, Stock, Suppliers, Terminals,
};
use nicol_workload::ycsb::{KeyForm, Mix, Popularity, SKEW};
use serde_json::json;

use crate::cli::{
    BenchArgs, ChoppingArg, DeliveryArg, DistributionArg, FeaturesArg, Format, IndicesArg,
    KeyFormArg, MixArg, ShipArg, StockArg, SuppliersArg, SystemArgs, TerminalsArg, WorkloadArgs,
};
use crate::output::{many, spinner};
use crate::serve::{check_log_device, check_log_folder};
use crate::span::seconds;
use crate::{End, Usage, blame, environment_or_usage, interrupt, output, trace};

/// The most transactions of a run: more than any machine finishes, and few enough to count with.
const TRANSACTIONS_MAX: u64 = 1_000_000_000_000;

/// Runs one benchmark.
pub fn run(args: &BenchArgs) -> Result<End> {
    if args.system.settings.iter().any(|setting| setting == "help") {
        return help_settings(&args.system.system, args.format);
    }
    let sink = trace::sink(args).map_err(Usage)?;
    let config = BenchConfig { trace: sink.clone(), ..config(args).map_err(environment_or_usage)? };
    let files =
        [("--history", &args.history), ("--decisions", &args.decisions), ("--trace", &args.trace)];
    for (flag, path) in files {
        path.as_deref().map_or(Ok(()), |path| output::ensure_writable(flag, path))?;
    }
    check_log_folder(&args.log_device)?;
    interrupt::end_with("interrupted: a run that has not ended reports nothing".to_owned())?;
    tracing::info!(
        system = config.system,
        workload = config.workload.name,
        on = config.on,
        seed = config.seed,
        "starting"
    );
    let spinner = spinner(&format!("{} on {}", config.workload.name, config.on));
    let ran = bench::run(&config);
    spinner.finish_and_clear();
    let ran = ran.map_err(blame)?;
    // What was measured is told in any case.
    print(args.format, &ran.report)?;
    if let Some(path) = &args.history {
        write_history(path, &ran).context("--history")?;
    }
    if let Some(path) = &args.decisions {
        crate::decisions::write(path, &ran)?;
    }
    if let Some(sink) = sink {
        trace::save(args, &sink.take())?;
    }
    Ok(if ran.report.check.held() { End::Held } else { End::Failed })
}

/// Lists the settings of a system.
pub fn help_settings(system: &str, format: Format) -> Result<End> {
    let system = systems::find(system).map_err(Usage)?;
    let rows = (system.settings)(system.name).into_iter().map(serde_json::to_value);
    let rows: Vec<_> = rows.collect::<Result<_, _>>()?;
    output::rows(format, &rows, |rows| json!({"schema": "nicol.settings/1", "rows": rows}))?;
    Ok(End::Held)
}

/// A number of transactions that a run can count.
pub(crate) fn transactions(count: u64) -> Result<Length> {
    ensure!(
        (1..=TRANSACTIONS_MAX).contains(&count),
        "--transactions {count}: give 1 to {TRANSACTIONS_MAX}"
    );
    Ok(Length::Transactions(count))
}

/// The mix of YCSB, or of TPC-C.
fn mixes(asked: MixArg) -> (Option<Mix>, Option<tpcc::Mix>) {
    match asked {
        MixArg::A => (Some(Mix::A), None),
        MixArg::B => (Some(Mix::B), None),
        MixArg::C => (Some(Mix::C), None),
        MixArg::D => (Some(Mix::D), None),
        MixArg::E => (Some(Mix::E), None),
        MixArg::F => (Some(Mix::F), None),
        MixArg::Full => (None, Some(tpcc::Mix::Full)),
        MixArg::NewOrderPayment => (None, Some(tpcc::Mix::NewOrderAndPayment)),
        MixArg::Payment => (None, Some(tpcc::Mix::PaymentOnly)),
    }
}

fn stock_of(stock: StockArg) -> Stock {
    match stock {
        StockArg::Split => Stock::Split,
        StockArg::Whole => Stock::Whole,
    }
}

fn delivery_of(delivery: DeliveryArg) -> DeliveryMode {
    match delivery {
        DeliveryArg::Deferred => DeliveryMode::Deferred,
        DeliveryArg::Interactive => DeliveryMode::Interactive,
    }
}

pub(crate) fn spec(args: &WorkloadArgs) -> Result<WorkloadSpec> {
    ensure!(
        WORKLOADS.iter().any(|(name, _)| *name == args.workload),
        "unknown workload '{}'{}: choose {}",
        args.workload,
        did_you_mean(&args.workload, WORKLOADS.map(|(name, _)| name)),
        WORKLOADS.map(|(name, meaning)| format!("{name} ({meaning})")).join("; ")
    );
    let (mix, tpcc_mix) = args.mix.map_or((None, None), mixes);
    Ok(WorkloadSpec {
        name: args.workload.clone(),
        transactions: None,
        records: args.records,
        warehouses: args.warehouses,
        items: args.items,
        customers: args.customers,
        features: args.features.map(|features| match features {
            FeaturesArg::Written => Features::Written,
            FeaturesArg::Artifact => Features::Artifact,
        }),
        suppliers: args.suppliers.map(|suppliers| match suppliers {
            SuppliersArg::Home => Suppliers::Specification,
            SuppliersArg::Uniform => Suppliers::Uniform,
        }),
        tpcc_mix,
        terminals: args.terminals.map(|terminals| match terminals {
            TerminalsArg::Shared => Terminals::Shared,
            TerminalsArg::Own => Terminals::Own,
        }),
        chopping: args.chopping.map(|chopping| match chopping {
            ChoppingArg::Whole => Chopping::Whole,
            ChoppingArg::Pieces => Chopping::Pieces,
        }),
        delivery: args.delivery.map(delivery_of),
        stock: args.stock.map(stock_of),
        shipped: args.ship.map(|ship| match ship {
            ShipArg::None => Shipped::Neither,
            ShipArg::NewOrder => Shipped::NewOrder,
            ShipArg::Payment => Shipped::Payment,
            ShipArg::Both => Shipped::Both,
        }),
        indices: args.indices.map(|indices| match indices {
            IndicesArg::Records => Indices::Records,
            IndicesArg::Trees => Indices::Trees,
        }),
        read_percent: args.read_percent,
        blind_percent: args.blind_percent,
        keys: args.keys,
        later_keys: args.later_keys,
        later_after: args.later_after,
        content: args.content,
        value_bytes: args.value_bytes,
        zipf_percent: args.zipf,
        zipf_over: args.zipf_over,
        hot_moves: args.hot_moves,
        tables: args.tables,
        scan_first: args.scan_first,
        both_tables: args.both_tables,
        mix,
        popularity: args.distribution.map(|distribution| match distribution {
            DistributionArg::Uniform => Popularity::Uniform,
            DistributionArg::Zipfian => Popularity::Zipfian(SKEW),
            DistributionArg::Latest => Popularity::Latest(SKEW),
        }),
        key_form: args.key_form.map(|form| match form {
            KeyFormArg::Number => KeyForm::Number,
            KeyFormArg::Bytes => KeyForm::Bytes,
        }),
    })
}

pub(crate) fn base(
    workload: &WorkloadArgs,
    system: &SystemArgs,
    on: &str,
    seed: u64,
) -> Result<BenchConfig> {
    Ok(BenchConfig {
        settings: system.settings.clone(),
        nodes: system.nodes(),
        replicas: system.replicas(),
        ..BenchConfig::new(&system.system, spec(workload)?, on, seed)
    })
}

fn config(args: &BenchArgs) -> Result<BenchConfig> {
    let length = match (args.seconds, args.transactions) {
        (Some(span), _) => Some(Length::Time(seconds("--seconds", span, 1e-6)?)),
        (None, Some(count)) => Some(transactions(count)?),
        (None, None) => None,
    };
    let fault_plan = args.fault_plan.as_deref().map(fault_plan).transpose()?;
    let faulty = args.faults.any() || fault_plan.is_some();
    ensure_fits_world(args, faulty)?;
    ensure!(
        args.history.is_none() || !args.no_recorded_run,
        "--history: with --no-recorded-run there is none; leave one of them out"
    );
    ensure!(
        args.transactions.is_none() || args.warmup.is_none_or(|span| span == 0.0),
        "--warmup: with --transactions all of them are measured; leave one of them out"
    );
    if args.decisions.is_some() {
        ensure_plans(&args.system.system, &args.system.settings).context("--decisions")?;
    }
    if !systems::find(&args.system.system)?.one_server {
        check_log_device(&args.log_device, args.system.replicas())?;
    }
    let homes = if args.client_nodes > 0 { args.client_nodes } else { args.system.nodes() };
    let clients = args.clients.unwrap_or(1).saturating_mul(homes);
    ensure!(
        clients <= CLIENTS_MAX as usize,
        "--clients: {clients} in all nodes together; give at most {CLIENTS_MAX}"
    );
    let mut config = base(&args.workload, &args.system, &args.on, args.seed)?;
    if args.full_size {
        config.workload.enlarge()?;
    }
    Ok(BenchConfig {
        client_nodes: args.client_nodes,
        host_engines: args.host_engines,
        nic_engines: args.nic_engines,
        clients: args.clients,
        length,
        warmup: args.warmup.map(|span| seconds("--warmup", span, 0.0)).transpose()?,
        rate: args.rate,
        adaptive_window: args.adaptive_window,
        faults: args.faults,
        fault_plan,
        threads: args.threads,
        silence: args.stuck_after.map(|span| seconds("--stuck-after", span, 0.5)).transpose()?,
        turn: args.turn_us.map(Nanos::from_micros),
        lease: args.lease_ms.map(Nanos::from_millis),
        steps: args.steps,
        recorded_run: !args.no_recorded_run,
        log_device: args.log_device.clone(),
        ..config
    })
}

/// Errors: a flag that says nothing in the run's world, with or without faults.
fn ensure_fits_world(args: &BenchArgs, faulty: bool) -> Result<()> {
    ensure!(args.threads != Some(0), "--threads 0: give at least 1");
    ensure!(
        args.threads.is_none() || args.on == THREADS,
        "--threads: the simulated world has no threads; use --host-engines and --nic-engines"
    );
    ensure!(
        args.stuck_after.is_none() || args.on == THREADS && !faulty,
        "--stuck-after: only on threads and without faults; other runs have bounds of their own"
    );
    ensure!(
        !args.steps || args.on != THREADS,
        "--steps: only in the simulated world, which knows what a step takes; give --on PROFILE"
    );
    if let Some(lease) = args.lease_ms {
        ensure!(
            args.on == THREADS && faulty,
            "--lease-ms: only on threads and with --faults or --fault-plan; a simulated lease is 10 ms"
        );
        ensure!((5..=60_000).contains(&lease), "--lease-ms {lease}: give 5 to 60000");
    }
    if let Some(turn) = args.turn_us {
        ensure!(turn > 0, "--turn-us 0: give at least 1");
        let alone = args.threads == Some(1) && args.log_device == LogDevice::Memory;
        ensure!(
            alone && !faulty,
            "--turn-us: only with --threads 1, --log-device memory and no faults"
        );
    }
    Ok(())
}

/// Reads a plan of faults.
fn fault_plan(path: &Path) -> Result<FaultPlan> {
    let flag = || format!("--fault-plan {}", path.display());
    let text = fs::read_to_string(path).with_context(flag)?;
    // A list is not taken for a plan whose fields it has in order.
    let plan: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&text).with_context(flag)?;
    let plan: FaultPlan = serde_json::from_value(plan.into()).with_context(flag)?;
    plan.ensure_possible().map_err(|why| anyhow!(why)).with_context(flag)?;
    Ok(plan)
}

/// Writes the history of a run, all of it or no file.
pub(crate) fn write_history(path: &Path, ran: &BenchRun) -> Result<()> {
    let report = &ran.report;
    let origin = Origin {
        system: Some(report.system.clone()),
        workload: Some(report.workload.clone()),
        seed: Some(report.seed),
    };
    write_atomically_by(path, |out| history_file::write(out, &origin, &ran.history))
}

fn print(format: Format, report: &BenchReport) -> Result<()> {
    match format {
        Format::Json => output::json(report),
        Format::Csv => {
            let row = output::flat(&serde_json::to_value(report).context("the report")?);
            output::rows(Format::Csv, &[row], |_| json!(null))
        }
        Format::Table => table(report),
    }
}

fn spread(latency: &nicol_bench::report::Latency) -> String {
    if latency.max.is_nan() {
        return "none".to_owned();
    }
    format!(
        "p50 {:.1}  p90 {:.1}  p99 {:.1}  p99.9 {:.1}  max {:.1}",
        latency.p50, latency.p90, latency.p99, latency.p999, latency.max
    )
}

fn table(report: &BenchReport) -> Result<()> {
    let mut rows = setting(report);
    rows.extend(report.warnings.iter().map(|warning| ("WARNING", warning.clone())));
    rows.push((
        "throughput",
        format!(
            "{:.0} transactions/s ({:.0} per node), {} committed",
            report.throughput_per_s, report.throughput_per_node_per_s, report.committed
        ),
    ));
    rows.push(("latency (us)", spread(&report.latency_us)));
    let kind = |kind: &nicol_bench::report::Kind| {
        let executed = format!("{}: {} ({})", kind.name, kind.committed, spread(&kind.latency_us));
        match &kind.deferred {
            Some(Deferred { answered, answer_us }) => {
                format!("{executed}; deferred: {answered} answered ({})", spread(answer_us))
            }
            None => executed,
        }
    };
    rows.push(("by type", report.kinds.iter().map(kind).collect::<Vec<_>>().join("\n")));
    rows.extend(costs(report));
    rows.push(("checks", verdict(report)));
    if let (Some(simulated), Some(events)) = (report.simulated_s, report.events_per_wall_s) {
        let digest = report.trace_digest.as_deref().unwrap_or("-");
        rows.push((
            "simulation",
            format!(
                "{:.1} ms simulated in {:.2} s, {:.2} M events/s, digest {digest}",
                simulated * 1e3,
                report.wall_s,
                events / 1e6,
            ),
        ));
    }
    output::pairs(&rows)
}

/// The settings of a run that its report begins with.
fn setting(report: &BenchReport) -> Vec<(&'static str, String)> {
    let world = report.profile.as_deref().unwrap_or(THREADS);
    let load = match report.rate_per_s {
        Some(rate) => format!("open loop, {rate} transactions/s"),
        None => format!("closed loop, {} clients per node", report.clients_per_node),
    };
    let log_device = match report.log_device {
        "memory" => "memory, as if battery-backed: nothing survives the process",
        "file" => "file: synced before a write is acknowledged, not yet read back",
        _ => "as the profile says",
    };
    let mut rows = vec![
        ("system", format!("{} on {world}, seed {}", report.system, report.seed)),
        ("cluster", cluster(report)),
        ("load", load),
        ("log device", log_device.to_owned()),
    ];
    match report.faults.as_str() {
        "none" => {}
        "plan" => rows.push(("faults", "as the plan says".to_owned())),
        families => rows.push(("faults", families.to_owned())),
    }
    rows
}

fn cluster(report: &BenchReport) -> String {
    let apart = match report.client_nodes {
        0 => String::new(),
        nodes => format!(" and {nodes} for clients alone"),
    };
    format!(
        "{}{apart}, {}, {} host + {} per node, started in {:.0} us each",
        many(report.nodes, "node"),
        many(report.replicas, "replica"),
        report.host_engines,
        many(report.nic_engines, "NIC engine"),
        report.start_us_per_node
    )
}

/// The aborts, and the resources that each transaction took.
fn costs(report: &BenchReport) -> Vec<(&'static str, String)> {
    let reasons: Vec<_> = report
        .abort_reasons
        .iter()
        // Refusals are among the other outcomes.
        .filter(|(reason, count)| **count > 0 && **reason != "refused")
        .map(|(reason, count)| format!("{reason} {count}"))
        .collect();
    let paths = report.paths.iter().filter(|(_, count)| **count > 0);
    let paths: Vec<_> = paths.map(|(path, count)| format!("{path} {count}")).collect();
    let mut rows = vec![
        ("paths", paths.join(", ")),
        (
            "aborts",
            format!(
                "{} ({:.2} a commit)  {}",
                report.aborted,
                report.binding.aborts_per_commit,
                reasons.join(", ")
            ),
        ),
        (
            "other outcomes",
            format!(
                "refused {}, unknown {}, given up {}",
                report.refused, report.unknown, report.failed
            ),
        ),
        (
            "per transaction",
            format!(
                "{:.1} messages, {:.1} frames, {:.0} bytes, {:.1} DMA requests, {:.1} verbs",
                report.messages_per_txn,
                report.frames_per_txn,
                report.bytes_per_txn,
                report.dma_per_txn,
                report.verbs_per_txn
            ),
        ),
        ("binds", report.binding.words()),
        ("resources", resources(&report.resources)),
        ("memory", report.memory.as_ref().map_or_else(|| "not known".to_owned(), memory)),
    ];
    for (side, title) in [("host", "host core time"), ("nic", "NIC core time")] {
        rows.extend(core_time(&report.core_time, side).map(|spent| (title, spent)));
    }
    if let (Some(each), Some(per_second)) = (report.server_cpu_us, report.per_server_cpu_s) {
        let told = format!("{each:.3} us a transaction, {per_second:.0} in a second of a core");
        rows.push(("server threads", told));
    }
    rows.extend(report.steps.iter().map(|step| ("step", step_words(step))));
    rows.extend(report.lines.iter().cloned());
    // Not every system has several ways.
    rows.retain(|(_, value)| !value.is_empty());
    rows
}

/// How busy each resource was: the mean over the nodes, and the busiest where that says more.
fn resources(resources: &[Resource]) -> String {
    let mut kinds: Vec<(&str, Vec<f64>)> = Vec::new();
    for used in resources {
        let kind = used.name.split_once('.').map_or(used.name.as_str(), |(_, kind)| kind);
        match kinds.iter_mut().find(|(name, _)| *name == kind) {
            Some((_, nodes)) => nodes.push(used.utilization),
            None => kinds.push((kind, vec![used.utilization])),
        }
    }
    let line = |(kind, nodes): &(&str, Vec<f64>)| {
        let mean = nodes.iter().sum::<f64>() / nodes.len() as f64 * 100.0;
        let most = nodes.iter().copied().fold(0.0, f64::max) * 100.0;
        let busiest =
            if most > mean + 3.0 { format!(" (busiest {most:.0} %)") } else { String::new() };
        format!("{kind} {mean:.0} %{busiest}")
    };
    kinds.iter().map(line).collect::<Vec<_>>().join(", ")
}

/// What the cores of `side` spent their time on, most first; `None` if it is not known.
fn core_time(times: &[CoreTime], side: &str) -> Option<String> {
    let mut spent: Vec<_> = times.iter().filter(|time| time.side == side).collect();
    if spent.is_empty() {
        return None;
    }
    spent.sort_by(|one, other| other.ns_per_txn.total_cmp(&one.ns_per_txn));
    let sum: f64 = spent.iter().map(|time| time.ns_per_txn).sum();
    let part = |time: &&CoreTime| format!("{} {:.0}", time.on, time.ns_per_txn);
    let parts: Vec<_> = spent.iter().map(part).collect();
    Some(format!("{sum:.0} ns per transaction: {}", parts.join(", ")))
}

/// The cost of a step.
fn step_words(step: &StepCost) -> String {
    let StepCost { side, step: name, ns_per_txn, .. } = step;
    let moves = |count: f64, bytes: f64, what| match count {
        0.0 => String::new(),
        count => format!("; {what} {count:.2} with {bytes:.0} bytes"),
    };
    let sent = moves(step.messages_per_txn, step.bytes_per_txn, "messages to others");
    let moved = moves(step.transfers_per_txn, step.transferred_bytes_per_txn, "DMA and verbs");
    format!("{side}, {name}: {ns_per_txn:.0} ns{sent}{moved}")
}

/// The memory that the records took.
fn memory(memory: &Memory) -> String {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    format!(
        "{} records (all copies) in {:.0} MB: {:.0} bytes each, {:.1} MB a node; peak {:.0} MB while loading, \
         {:.0} MB in all",
        memory.records,
        mb(memory.loaded_bytes),
        memory.bytes_per_record,
        memory.bytes_per_node / 1e6,
        mb(memory.loading_peak_bytes),
        mb(memory.peak_bytes),
    )
}

fn verdict(report: &BenchReport) -> String {
    let check = &report.check;
    let yes_no = |held: bool| if held { "yes" } else { "NO" };
    let leaks: Vec<_> =
        check.leaked.iter().map(|(name, count)| format!("{count} {}", shown(name))).collect();
    let mut lines = vec![format!(
        "{}: {} ({} attempts judged){}; invariants: {}; replicas agree: {}; leaked: {}",
        check.promised.words,
        check.held_promise.map_or("not recorded", yes_no),
        check.checked,
        if report.profile.is_none() && check.held_promise.is_some() {
            ", in a second, recorded run"
        } else {
            ""
        },
        yes_no(check.invariants),
        check.replicas_converge.map_or("need not", yes_no),
        if leaks.is_empty() { "nothing".to_owned() } else { leaks.join(", ") }
    )];
    for (name, count) in check.awaiting_recovery.iter().filter(|(_, count)| **count > 0) {
        lines.push(format!("awaiting recovery: {count} {}", shown(name)));
    }
    if let Some(lost) = check.acknowledged_lost.filter(|lost| *lost > 0) {
        lines.push(format!("acknowledged and lost by a crash of everything: {lost} writes"));
    }
    lines.extend(check.violations.iter().map(|violation| format!("VIOLATION {violation}")));
    lines.join("\n")
}

/// A name of a report in words.
fn shown(name: &str) -> String {
    name.replace('_', " ")
}
