//! Prints what a remote lookup costs in each structure: `lookup_cost [KEYS] [SEED]`.

use std::time::Instant;

use nicol_store::lookup_cost::{COMPARED, measure};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let (Ok(keys), Ok(seed)) =
        (arguments.next().unwrap_or(Ok(200_000)), arguments.next().unwrap_or(Ok(1)))
    else {
        eprintln!("usage: lookup_cost [KEYS] [SEED]");
        std::process::exit(2);
    };
    println!("structure  parameter  objects_read  roundtrips  overflow_fraction  seconds");
    for structure in COMPARED {
        let begun = Instant::now();
        let cost = measure(structure, keys, seed);
        let parameter = structure.parameter().map_or("none".to_owned(), |value| value.to_string());
        println!(
            "{:<9}  {:>9}  {:>12.3}  {:>10.4}  {:>17.5}  {:>7.1}",
            structure.name(),
            parameter,
            cost.objects_read(),
            cost.mean_roundtrips(),
            cost.overflow_fraction(),
            begun.elapsed().as_secs_f64(),
        );
    }
}
