//! Prints the component checks of a profile: published beside modelled.

use std::error::Error;
use std::sync::Arc;

use nicol_sim::{Profile, checks};

fn main() -> Result<(), Box<dyn Error>> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let names = if names.is_empty() {
        Profile::list().into_iter().map(String::from).collect()
    } else {
        names
    };
    for name in names {
        println!("{name}");
        for line in checks::run(&Arc::new(Profile::load(&name)?))? {
            let (low, high) = line.published;
            let mark = if line.is_close() { ' ' } else { '!' };
            println!(
                "{mark} {:7} {:72} {low:8.1}..{high:<8.1} {:9.2} {:6} {:+6.1} %",
                line.line,
                line.what,
                line.measured,
                line.unit,
                line.relative_error * 100.0
            );
        }
    }
    Ok(())
}
