//! The command that repeats a run.

use std::path::Path;

use nicol_core::faults::FaultFamilies;
use nicol_workload::tpcc::{
    self, Chopping, DeliveryMode, Features, Indices, Shipped, Stock, Suppliers, Terminals,
};
use nicol_workload::ycsb::{KeyForm, Popularity};

use crate::command_line::{flag, shell_word};
use nicol_bench::config::{BenchConfig, Length};

use nicol_bench::workloads::WorkloadSpec;

/// The `nicol bench` command that runs `config` again; with the faults of the plan in `plan` where
/// there is one, otherwise with those that the configuration draws.
pub fn command(config: &BenchConfig, plan: Option<&Path>) -> String {
    let mut line = format!("nicol bench {}", config.workload.name);
    let mut add = |field: &str, value: Option<String>| {
        line.extend(value.map(|value| format!(" {} {}", flag(field), shell_word(&value))));
    };
    workload_flags(&config.workload, &mut add);
    add("system", Some(config.system.clone()));
    add("on", Some(config.on.clone()));
    add("nodes", Some(config.nodes.to_string()));
    let apart = Some(config.client_nodes).filter(|&nodes| nodes > 0);
    add("client_nodes", apart.map(|nodes| nodes.to_string()));
    add("replicas", Some(config.replicas.to_string()));
    add("host_engines", config.host_engines.map(|count| count.to_string()));
    add("nic_engines", config.nic_engines.map(|count| count.to_string()));
    add("clients", config.clients.map(|count| count.to_string()));
    match config.length {
        Some(Length::Transactions(count)) => add("transactions", Some(count.to_string())),
        Some(Length::Time(span)) => add("seconds", Some(span.as_secs_f64().to_string())),
        None => {}
    }
    add("warmup", config.warmup.map(|span| span.as_secs_f64().to_string()));
    add("rate", config.rate.map(|rate| rate.to_string()));
    let window = config.adaptive_window.filter(|adapts| *adapts != config.defaults_to_window());
    add("adaptive_window", window.map(|adapts| adapts.to_string()));
    add("seed", Some(config.seed.to_string()));
    match plan {
        Some(path) => add("fault_plan", Some(path.display().to_string())),
        None if config.faults != FaultFamilies::NONE => {
            add("faults", Some(config.faults.to_string()));
        }
        None => {}
    }
    add("threads", config.threads.map(|threads| threads.to_string()));
    for setting in &config.settings {
        add("set", Some(setting.clone()));
    }
    line
}

fn workload_flags(spec: &WorkloadSpec, add: &mut impl FnMut(&str, Option<String>)) {
    add("records", spec.records.map(|value| value.to_string()));
    add("warehouses", spec.warehouses.map(|value| value.to_string()));
    add("items", spec.items.map(|value| value.to_string()));
    add("customers", spec.customers.map(|value| value.to_string()));
    tpcc_flags(spec, add);
    add("mix", spec.mix.map(|mix| mix.name().to_owned()));
    let distribution = spec.popularity.map(|popularity| match popularity {
        Popularity::Uniform => "uniform",
        Popularity::Zipfian(_) | Popularity::Scrambled { .. } => "zipfian",
        Popularity::Latest(_) => "latest",
    });
    add("distribution", distribution.map(str::to_owned));
    let key_form = spec.key_form.map(|form| match form {
        KeyForm::Number => "number",
        KeyForm::Bytes => "bytes",
    });
    add("key_form", key_form.map(str::to_owned));
    add("read_percent", spec.read_percent.map(|value| value.to_string()));
    add("blind_percent", spec.blind_percent.map(|value| value.to_string()));
    add("keys", spec.keys.map(|value| value.to_string()));
    add("later_keys", spec.later_keys.map(|value| value.to_string()));
    add("later_after", spec.later_after.map(|value| value.to_string()));
    add("value_bytes", spec.value_bytes.map(|value| value.to_string()));
    add("content", spec.content.map(|content| content.to_string()));
    add("zipf", spec.zipf_percent.map(|value| value.to_string()));
    add("zipf_over", spec.zipf_over.map(|value| value.to_string()));
    add("hot_moves", spec.hot_moves.map(|value| value.to_string()));
    add("tables", spec.tables.map(|value| value.to_string()));
    add("scan_first", spec.scan_first.map(|value| value.to_string()));
    add("both_tables", spec.both_tables.map(|value| value.to_string()));
}

/// Those of TPC-C that are chosen among words.
fn tpcc_flags(spec: &WorkloadSpec, add: &mut impl FnMut(&str, Option<String>)) {
    let features = spec.features.map(|features| match features {
        Features::Written => "written",
        Features::Artifact => "artifact",
    });
    add("features", features.map(str::to_owned));
    let suppliers = spec.suppliers.map(|suppliers| match suppliers {
        Suppliers::Specification => "home",
        Suppliers::Uniform => "uniform",
    });
    add("suppliers", suppliers.map(str::to_owned));
    let mix = spec.tpcc_mix.and_then(|mix| match mix {
        tpcc::Mix::Full => Some("full"),
        tpcc::Mix::NewOrderAndPayment => Some("new-order-payment"),
        tpcc::Mix::PaymentOnly => Some("payment"),
        // A workload of its own, without a flag.
        tpcc::Mix::NewOrderOnly => None,
    });
    add("mix", mix.map(str::to_owned));
    let terminals = spec.terminals.map(|terminals| match terminals {
        Terminals::Shared => "shared",
        Terminals::Own => "own",
    });
    add("terminals", terminals.map(str::to_owned));
    let chopping = spec.chopping.map(|chopping| match chopping {
        Chopping::Whole => "whole",
        Chopping::Pieces => "pieces",
    });
    add("chopping", chopping.map(str::to_owned));
    let delivery = spec.delivery.map(|delivery| match delivery {
        DeliveryMode::Deferred => "deferred",
        DeliveryMode::Interactive => "interactive",
    });
    add("delivery", delivery.map(str::to_owned));
    let stock = spec.stock.map(|stock| match stock {
        Stock::Split => "split",
        Stock::Whole => "whole",
    });
    add("stock", stock.map(str::to_owned));
    let shipped = spec.shipped.map(|shipped| match shipped {
        Shipped::Neither => "none",
        Shipped::NewOrder => "new-order",
        Shipped::Payment => "payment",
        Shipped::Both => "both",
    });
    add("ship", shipped.map(str::to_owned));
    let indices = spec.indices.map(|indices| match indices {
        Indices::Records => "records",
        Indices::Trees => "trees",
    });
    add("indices", indices.map(str::to_owned));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_all_that_a_run_depends_on() {
        let mut config = BenchConfig::new("farm", WorkloadSpec::named("ycsb"), "connectx5", 7);
        config.workload.mix = Some(nicol_workload::ycsb::Mix::D);
        config.workload.records = Some(40);
        config.length = Some(Length::Transactions(500));
        config.faults = "messages,crashes".parse().unwrap();
        config.clients = Some(8);
        config.settings = vec!["timeout_us=500".to_owned()];
        let common = "nicol bench ycsb --records 40 --mix D --system farm --on connectx5 --nodes 3 \
                      --replicas 3 --clients 8 --transactions 500 --seed 7";
        assert_eq!(
            command(&config, None),
            format!("{common} --faults messages,crashes --set timeout_us=500")
        );
        let plan = Path::new("a plan.json");
        assert_eq!(
            command(&config, Some(plan)),
            format!("{common} --fault-plan 'a plan.json' --set timeout_us=500")
        );
        config.workload = WorkloadSpec {
            hot_moves: Some(9),
            tables: Some(2),
            later_keys: Some(8),
            later_after: Some(70),
            ..WorkloadSpec::named("ycsb-t")
        };
        let text = command(&config, None);
        let workload =
            "nicol bench ycsb-t --later-keys 8 --later-after 70 --hot-moves 9 --tables 2 ";
        assert!(text.starts_with(workload), "{text}");
        config.workload = WorkloadSpec {
            tpcc_mix: Some(tpcc::Mix::NewOrderAndPayment),
            terminals: Some(Terminals::Own),
            ..WorkloadSpec::named("tpcc")
        };
        let text = command(&config, None);
        let workload = "nicol bench tpcc --mix new-order-payment --terminals own ";
        assert!(text.starts_with(workload), "{text}");
    }
}
