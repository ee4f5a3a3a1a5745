//! `nicol lab` as a script sees it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn lab(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nicol")).arg("lab").args(args).output().expect("nicol starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("nicol prints text")
}

/// What a command prints that must hold.
fn held(args: &[&str]) -> String {
    let output = lab(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// What a command says that must end with `code`.
fn fails(args: &[&str], code: i32) -> String {
    let output = lab(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
    text(&output.stderr)
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nicol-lab-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a temporary folder's path is text")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn golden(id: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../nicol-lab/golden/commit/{id}.json"))
}

#[test]
fn json_has_the_promised_fields_and_every_row_the_listed_columns() {
    let list: Value = serde_json::from_str(&held(&["list", "--format", "json"])).unwrap();
    let columns = list["rows"].as_array().unwrap().iter().find_map(|row| {
        (row["figure"] == "xenic-fig2").then(|| row["columns"].as_str().unwrap().to_owned())
    });
    let printed = held(&["run", "xenic-fig2", "--quick", "--seed", "3", "--format", "json"]);
    assert!(printed.starts_with("{\n  \"schema\": \"nicol.lab/1\""), "schema comes first");
    let result: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(result["figure"], "xenic-fig2");
    assert_eq!(result["profile"], "liquidio3,connectx5");
    assert_eq!(result["seed"], 3);
    assert!(!result["assumed"].as_array().unwrap().is_empty());
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 11);
    let listed: Vec<&str> = columns.as_deref().unwrap().split(' ').collect();
    for row in rows {
        let names: Vec<&String> = row.as_object().unwrap().keys().collect();
        assert_eq!(names, listed);
    }
    let csv = held(&["run", "xenic-fig2", "--quick", "--format", "csv"]);
    assert_eq!(
        csv.lines().next(),
        columns.as_deref().map(|names| names.replace(' ', ",")).as_deref()
    );
    assert_eq!(csv.lines().count(), 12);
}

#[test]
fn results_depend_neither_on_the_jobs_nor_on_the_build() {
    let golden = fs::read_to_string(golden("xenic-fig4")).expect("the golden table is there");
    for jobs in ["1", "3"] {
        let printed = held(&["run", "xenic-fig4", "--quick", "--format", "json", "--jobs", jobs]);
        assert!(printed == golden, "with {jobs} jobs: bless the golden tables if this is wanted");
    }
}

#[test]
fn a_changed_figure_fails_the_check_and_blessing_mends_it() {
    let folder = Folder::new("golden");
    let run = ["run", "xenic-fig2", "--quick", "--golden", folder.path()];
    assert!(fails(&run, 1).contains("is missing"));
    held(&[&run[..], &["--bless"]].concat());
    held(&run);
    let slower = ["--profile", "liquidio3:pcie.to_host_latency=571ns"];
    let said = fails(&[&run[..], &slower].concat(), 1);
    assert!(said.contains("golden:") && said.contains("found:"), "{said}");
    let path = folder.0.join("commit/xenic-fig2.json");
    let changed =
        fs::read_to_string(&path).unwrap().replacen("\"latency_us\": 4", "\"latency_us\": 5", 1);
    fs::write(&path, changed).unwrap();
    assert!(fails(&run, 1).contains("\"latency_us\": 5"));
    let below = folder.0.join("commit");
    let said = fails(&[&run[..4], &[below.to_str().unwrap()]].concat(), 2);
    assert!(said.contains("the folder of one family: name the one above it"), "{said}");
}

#[test]
fn files_and_the_page_of_them_are_written() {
    let folder = Folder::new("out");
    held(&["run", "xenic-fig2", "--quick", "--out", folder.path()]);
    for extension in ["json", "csv", "svg"] {
        assert!(folder.0.join(format!("xenic-fig2.{extension}")).is_file(), "{extension}");
    }
    let said = held(&["report", folder.path()]);
    let page = fs::read_to_string(said.trim()).unwrap();
    assert!(page.contains("<svg") && page.contains("host_rpc") && page.contains("Assumed"));
    assert!(!page.contains("<script") && !page.contains("src="), "the page needs nothing else");
    let empty = Folder::new("empty");
    assert!(fails(&["report", empty.path()], 2).contains("holds no results"));
}

#[test]
fn the_page_tells_what_is_unfinished_and_the_command_finishes_it() {
    let folder = Folder::new("unfinished");
    // Results that cannot be written leave the points, as an interruption does.
    fs::create_dir(folder.0.join("xenic-table2.json")).unwrap();
    let run = ["run", "xenic-table2", "--quick", "--seed", "3", "--out", folder.path()];
    fails(&run, 3);
    fs::remove_dir(folder.0.join("xenic-table2.json")).unwrap();
    let files = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path());
    let path = files.into_iter().find(|path| path.extension().is_some_and(|end| end == "points"));
    let path = path.expect("the points are kept");
    let kept = fs::read_to_string(&path).unwrap();
    let most: Vec<&str> = kept.lines().take(4).collect();
    fs::write(&path, most.join("\n") + "\n").unwrap();

    let report = || fs::read_to_string(held(&["report", folder.path()]).trim()).unwrap();
    let page = report();
    let command = page.split("<code>").nth(1).and_then(|rest| rest.split("</code>").next());
    let command = command.expect("the page says how it is finished").to_owned();
    assert_eq!(command, format!("nicol lab {}", run.join(" ")));
    assert!(page.contains("3 points are kept"), "{page}");

    let words: Vec<&str> = command.split(' ').skip(2).collect();
    let output = lab(&words);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("and 3 measured before"), "{told}");
    let page = report();
    assert!(!page.contains("Unfinished") && page.contains("<svg"));
    fs::write(&path, "build 0 xenic-table2 --seed 9\n{}\n").unwrap();
    assert!(report().contains("no point is kept that this build could use"));
}

#[test]
fn of_several_experiments_a_summary_is_printed() {
    let folder = Folder::new("several");
    let ids = ["xenic-fig2", "xenic-fig4", "xenic-fig2"];
    let out = ["--quick", "--out", folder.path(), "--format", "csv"];
    let summary = held(&[&["run"], &ids[..], &out].concat());
    let verdicts: Vec<_> = summary.lines().skip(1).collect();
    assert_eq!(verdicts.len(), 2, "each once: {summary}");
    assert!(verdicts.iter().all(|line| line.contains("held")), "{summary}");
    let mut names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let files = ["csv", "json", "svg"];
    let wanted = ["xenic-fig2", "xenic-fig4"].map(|id| files.map(|file| format!("{id}.{file}")));
    assert_eq!(names, wanted.concat(), "and nothing of unfinished runs");
}

#[test]
fn what_does_not_fit_is_refused_with_exit_code_2() {
    for (args, wanted) in [
        (&["run", "xenic-fig0"][..], "no experiment is called 'xenic-fig0'"),
        (&["run", "xenic-fig2", "--profile", "connectx5"], "an on-path SmartNIC, which it lacks"),
        (&["run", "xenic-table2", "--profile", "liquidio3"], "no timing model"),
        (&["run", "xenic-fig2", "--jobs", "0"], "give at least 1"),
        (&["run", "xenic-fig8d", "--systems", "redis"], "compares xenic"),
        (&["run", "xenic-fig8d", "xenic-fig2", "--systems", "xenic"], "xenic-fig2 compares none"),
        (&["run", "xenic-fig8d", "xenic-50g", "--systems", "redis"], "compares none"),
        (&["run", "--all", "--systems", "redis"], "no experiment compares it"),
        (&["run"], "required"),
    ] {
        let said = fails(args, 2);
        assert!(said.contains(wanted), "{args:?}: {said}");
    }
}
