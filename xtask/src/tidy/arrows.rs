//! Which crate may depend on which.

use toml::de::{DeTable, DeValue};

use super::Finding;

const RULE: &str = "crate direction";

const CORE: &str = "nicol-core";
const STORE: &str = "nicol-store";
/// The suite of every world, for their tests.
const CONFORMANCE: &str = "nicol-conformance";
/// What plans from descriptions, over the profiles and worlds of the simulator.
const PLANNER: &str = "nicol-planner";
const KIT: &str = "nicol-kit";
/// Schedulers, which stand before systems of two families.
pub(super) const SCHEDULE: &str = "nicol-schedule";
/// The families of systems. None knows another.
pub(super) const FAMILIES: [&str; 5] =
    ["nicol-commit", "nicol-engines", "nicol-minos", "nicol-offpath", "nicol-prism"];
/// Every system in every world.
const BENCH: &str = "nicol-bench";
/// The worlds, what runs there, and who judges.
const BESIDE: [&str; 4] = ["nicol-sim", "nicol-rt", "nicol-workload", "nicol-check"];

/// May `from` depend on `to`? `None` if `from` is unknown to the table of the style guide.
fn allowed(from: &str, to: &str, only_tests: bool) -> Option<bool> {
    let beside = BESIDE.contains(&to);
    let system = FAMILIES.contains(&to);
    let below = to == CORE || to == STORE || to == KIT;
    Some(match from {
        CORE | "xtask" => false,
        STORE | CONFORMANCE | "fuzz" => to == CORE,
        PLANNER => to == CORE || to == "nicol-sim",
        KIT => to == CORE || (only_tests && beside),
        SCHEDULE => below || (only_tests && beside),
        // A model of MINOS follows runs of it.
        "nicol-minos" if only_tests && to == BENCH => true,
        _ if FAMILIES.contains(&from) => below || to == SCHEDULE || (only_tests && beside),
        _ if BESIDE.contains(&from) => {
            to == CORE || (only_tests && (beside || system || to == STORE || to == CONFORMANCE))
        }
        // The RESP server knows transactions and nothing of who runs them.
        "nicol-resp" => to == CORE,
        "nicol-lab" if only_tests && to == PLANNER => true,
        BENCH => below || to == SCHEDULE || system || beside,
        "nicol-lab" => to == BENCH || below || to == SCHEDULE || system || beside,
        "nicol" | "nicol-py" => to != from && to != "nicol-py" && to != "nicol",
        _ => return None,
    })
}

/// The arrows of one manifest, and whether it takes the workspace's lints.
pub(super) fn check(krate: &str, path: &str, text: &str) -> Vec<Finding> {
    let manifest = match DeTable::parse(text) {
        Ok(manifest) => manifest.into_inner(),
        Err(error) => return vec![Finding::new(path, 1, "manifest", error.to_string())],
    };
    let mut findings = Vec::new();
    if allowed(krate, CORE, false).is_none() {
        let remedy = format!("{krate} has no place yet: add it to xtask's arrows and the guide");
        return vec![Finding::new(path, 1, RULE, remedy)];
    }
    let mut sections = vec![&manifest];
    if let Some(targets) = table(&manifest, "target") {
        sections.extend(targets.values().filter_map(|target| target.get_ref().as_table()));
    }
    for section in sections {
        for kind in ["dependencies", "build-dependencies", "dev-dependencies"] {
            for (name, value) in table(section, kind).into_iter().flatten() {
                let to = renamed(value.get_ref()).unwrap_or(name.get_ref());
                let ours = to == "nicol" || to == "xtask" || to.starts_with("nicol-");
                let fine = allowed(krate, to, kind == "dev-dependencies") == Some(true);
                if ours && !fine {
                    let line = line_of(text, name.span().start);
                    let remedy = format!(
                        "{krate} may not depend on {to} ({kind}): move what both need to {CORE}, \
                         or the caller to a crate above"
                    );
                    findings.push(Finding::new(path, line, RULE, remedy));
                }
            }
        }
    }
    let inherited = table(&manifest, "lints").and_then(|lints| lints.get("workspace"));
    if inherited.and_then(|value| value.get_ref().as_bool()) != Some(true) {
        let remedy = "take the workspace's lints: [lints] workspace = true";
        findings.push(Finding::new(path, 1, "lints", remedy));
    }
    findings
}

fn table<'t, 'i>(of: &'t DeTable<'i>, name: &str) -> Option<&'t DeTable<'i>> {
    of.get(name)?.get_ref().as_table()
}

/// The package that a dependency takes under another name.
fn renamed<'t>(value: &'t DeValue<'_>) -> Option<&'t str> {
    value.get("package")?.get_ref().as_str()
}

/// The line of a byte, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINTS: &str = "[lints]\nworkspace = true\n";

    fn found(krate: &str, body: &str) -> Vec<(usize, String)> {
        let findings = check(krate, "Cargo.toml", &format!("{LINTS}{body}"));
        findings.into_iter().map(|finding| (finding.line, finding.remedy)).collect()
    }

    #[test]
    fn allowed_arrows_pass() {
        let body = "[dependencies]\nnicol-core.workspace = true\nserde.workspace = true\n";
        assert_eq!(found("nicol-sim", body), []);
        assert_eq!(found("nicol-commit", "[dependencies]\nnicol-store = { path = \"a\" }\n"), []);
        assert_eq!(found("nicol", "[dependencies]\nnicol-lab.workspace = true\n"), []);
    }

    #[test]
    fn families_do_not_meet() {
        let body = "[dependencies]\nnicol-minos.workspace = true\n";
        assert_eq!(found("nicol-commit", body).len(), 1);
        assert_eq!(found("nicol-kit", body).len(), 1);
        assert_eq!(found("nicol-lab", body), []);
        assert_eq!(found("nicol-commit", &body.replace("minos", "schedule")), []);
    }

    #[test]
    fn middle_crates_meet_in_tests_only() {
        let body = "[dependencies]\nnicol-rt.workspace = true\n";
        let findings = found("nicol-sim", body);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].0, 4);
        assert!(findings[0].1.contains("nicol-sim may not depend on nicol-rt"), "{findings:?}");
        assert_eq!(found("nicol-sim", &body.replace("[dep", "[dev-dep")), []);
    }

    #[test]
    fn nothing_points_upwards_not_even_in_tests() {
        let body = "[dev-dependencies]\nnicol-sim.workspace = true\n";
        assert_eq!(found("nicol-core", body).len(), 1);
        assert_eq!(found("nicol-store", body).len(), 1);
        assert_eq!(found("nicol-sim", "[dev-dependencies]\nnicol-lab = \"1\"\n").len(), 1);
        assert_eq!(found("nicol-lab", "[dependencies]\nnicol = \"1\"\n").len(), 1);
    }

    #[test]
    fn no_detour_hides_an_arrow() {
        let detours = [
            "[dependencies.nicol-rt]\npath = \"../nicol-rt\"\n",
            "[dependencies]\nlive = { package = \"nicol-rt\", path = \"../nicol-rt\" }\n",
            "[target.'cfg(unix)'.dependencies]\nnicol-rt.workspace = true\n",
            "[build-dependencies]\nnicol-rt.workspace = true\n",
        ];
        for body in detours {
            assert_eq!(found("nicol-sim", body).len(), 1, "{body}");
        }
    }

    #[test]
    fn an_unknown_crate_and_missing_lints_are_findings() {
        assert_eq!(found("nicol-new", "").len(), 1);
        assert_eq!(check("nicol-sim", "Cargo.toml", "[package]\n").len(), 1);
    }
}
