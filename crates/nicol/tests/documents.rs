//! Every command in the documents works: blocks marked `sh` are run, those marked `console` show
//! commands behind `$ ` and clients' sessions behind a prompt.
//!
//! In a `console` block, `nicol serve` is started if clients talk to it on the same page, and what
//! the client is told must be what the page shows. Every other `nicol` command is parsed by the
//! real command line (with `--help` at its end), and the systems, profiles and experiments that it
//! names must exist. What no test can run here (`cargo test`, `redis-benchmark`) is in a list.

#[path = "documents/session.rs"]
mod session;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use session::Session;

const NICOL: &str = env!("CARGO_BIN_EXE_nicol");
const PROMPT: &str = "127.0.0.1:6380> ";
/// What a page may name without a test that runs it.
const UNTRIED: [&str; 4] = ["cargo test", "cargo clippy", "redis-benchmark", "cd fuzz"];
/// Shortens a benchmark that names no length, so that the pages can show the plain command.
const SHORT: &str = r#"#!/bin/sh
case "$*" in
  bench*--seconds*|bench*--transactions*) ;;
  bench*--on*) set -- "$@" --transactions 200 ;;
  bench*) set -- "$@" --seconds 0.2 ;;
esac
exec "$NICOL" "$@"
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A fenced block of a page.
#[derive(Debug)]
struct Block {
    line: usize,
    kind: String,
    lines: Vec<String>,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for (at, line) in text.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(kind)) => {
                open = Some(Block { line: at + 1, kind: kind.to_owned(), lines: Vec::new() });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(block), None) => block.lines.push(line.to_owned()),
            (None, None) => {}
        }
    }
    found
}

/// A page under test: its folder, its server, and what is wrong with it.
struct Page {
    name: String,
    folder: PathBuf,
    session: Session,
    wrong: Vec<String>,
}

impl Page {
    fn new(name: &str) -> Self {
        let folder = format!("document-{}", name.replace(['/', '.'], "-"));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
        let _gone = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("bin")).unwrap();
        for shared in ["docs", "profiles", "crates"] {
            symlink(root().join(shared), folder.join(shared)).unwrap();
        }
        // A test that builds would wait for the build that runs it.
        for (name, script) in [("nicol", SHORT), ("cargo", "#!/bin/sh\nexit 1\n")] {
            let path = folder.join("bin").join(name);
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let session = Session::new(&folder);
        Self { name: name.to_owned(), folder, session, wrong: Vec::new() }
    }

    fn wrong(&mut self, line: usize, why: &str) {
        self.wrong.push(format!("{}:{line}: {why}", self.name));
    }

    /// Tries every block of the page. Returns how many commands were tried.
    fn check(&mut self, text: &str) -> usize {
        let mut tried = 0;
        for block in blocks(text) {
            match &*block.kind {
                "sh" => {
                    tried += 1;
                    self.run(&block);
                }
                "console" => {
                    tried += self.show(&block, text.contains("redis-cli") || text.contains(PROMPT))
                }
                "text" | "toml" | "json" | "rust" => {}
                other => self.wrong(
                    block.line,
                    &format!("'{other}': mark a block as sh, console, text, toml, json or rust"),
                ),
            }
        }
        tried
    }

    /// Runs a block in the page's folder.
    fn run(&mut self, block: &Block) {
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", self.folder.join("bin").display());
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &block.lines.join("\n")])
            .current_dir(&self.folder)
            .env("PATH", path)
            .env("NICOL", NICOL)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            self.wrong(block.line, &format!("{}: {}", output.status, told.trim()));
        }
    }

    /// Tries the commands that a block shows.
    fn show(&mut self, block: &Block, clients: bool) -> usize {
        let mut tried = 0;
        let mut at = 0;
        while at < block.lines.len() {
            let (line, text) = (block.line + 1 + at, block.lines[at].clone());
            at += 1;
            let asked = text.strip_prefix(PROMPT).or_else(|| text.strip_prefix("$ redis-cli "));
            let shown: Vec<String> = block.lines[at..]
                .iter()
                .take_while(|next| !next.starts_with("$ ") && !next.starts_with(PROMPT))
                .cloned()
                .collect();
            at += shown.len();
            tried += 1;
            let outcome = match (asked, text.strip_prefix("$ ")) {
                (Some(asked), _) => self.session.ask(asked, &shown),
                (None, Some(command)) => self.command(uncommented(command), clients),
                (None, None) => Err("a console block begins with '$ ' or a prompt".to_owned()),
            };
            if let Err(why) = outcome {
                self.wrong(line, &format!("{text}: {why}"));
            }
        }
        tried
    }

    fn command(&mut self, command: &str, clients: bool) -> Result<(), String> {
        let words: Vec<&str> = command.split_whitespace().collect();
        let words = words.strip_suffix(&["&"]).unwrap_or(&words);
        match words {
            ["nicol", "serve", args @ ..] if clients && !args.contains(&"--listen") => {
                self.session.serve(args)
            }
            ["kill", "-9", "%1"] => self.session.kill(),
            ["nicol", args @ ..] | ["cargo", "run", "--release", "--", args @ ..] => parse(args),
            ["cargo", "xtask", task, ..] => {
                let usage = fs::read_to_string(root().join("xtask/src/main.rs")).unwrap();
                let known = usage.contains(&format!("[\"{task}\""));
                known.then_some(()).ok_or_else(|| "cargo xtask has no such task".to_owned())
            }
            ["cargo", "run", rest @ ..] if rest.contains(&"--example") => example(rest),
            _ if UNTRIED.iter().any(|known| command.starts_with(known)) => Ok(()),
            _ => Err("no test knows this command".to_owned()),
        }
    }
}

/// The command without the comment at its end.
fn uncommented(command: &str) -> &str {
    command.split("  #").next().unwrap_or(command).trim()
}

/// Has the real command line parse `args`, and looks up the names in them.
fn parse(args: &[&str]) -> Result<(), String> {
    let output = Command::new(NICOL).args(args).arg("--help").output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    for pair in args.windows(2) {
        let names = pair[1].split(',').filter(|name| !["all", "threads"].contains(name));
        for name in names.filter(|name| !name.contains(['=', ':', '.']) || pair[0] == "--system") {
            match pair[0] {
                "show" if args[0] == "lab" => listed("lab", name)?,
                "--system" | "show" if args[0] != "profiles" => listed("systems", name)?,
                "--on" | "check" | "show" if args[0] != "check" => listed("profiles", name)?,
                _ => {}
            }
        }
    }
    if let ["lab", "run", id, ..] = args
        && !id.starts_with('-')
    {
        listed("lab", id)?;
    }
    Ok(())
}

/// Does the list of `what` have `name`?
fn listed(what: &str, name: &str) -> Result<(), String> {
    let output = Command::new(NICOL).args([what, "list", "--format", "json"]).output().unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    let known = list.contains(&format!("\"{name}\""));
    known.then_some(()).ok_or_else(|| format!("nicol {what} list has no {name}"))
}

fn example(words: &[&str]) -> Result<(), String> {
    let after = |flag: &str| {
        let at = words.iter().position(|word| *word == flag).ok_or(format!("it needs {flag}"))?;
        words.get(at + 1).copied().ok_or(format!("{flag} names nothing"))
    };
    let file = root().join("crates").join(after("-p")?).join("examples").join(after("--example")?);
    let known = file.is_dir() || file.with_extension("rs").is_file();
    known.then_some(()).ok_or_else(|| "there is no such example".to_owned())
}

fn pages() -> Vec<PathBuf> {
    let mut open = vec![root().join("docs")];
    let mut found: Vec<_> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]
        .iter()
        .map(|name| root().join(name))
        .collect();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn every_command_in_the_documents_works() {
    let (mut tried, mut wrong) = (0, Vec::new());
    for path in pages() {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let text = fs::read_to_string(&path).unwrap();
        if text.contains("```") {
            let mut page = Page::new(&name);
            tried += page.check(&text);
            wrong.append(&mut page.wrong);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried > 60, "{tried} commands were found: are the blocks marked?");
}

#[test]
fn a_wrong_command_is_found() {
    let server = "$ nicol serve\n$ redis-cli";
    for (kind, lines) in [
        ("sh", "nicol bench smallbank --nods 3"),
        ("sh", "nicol check /nowhere"),
        ("bash", "true"),
        ("console", "nicol systems"),
        ("console", "$ nicol bench smallbank --nods 3"),
        ("console", "$ nicol bench smallbank --system xenik"),
        ("console", "$ nicol bench smallbank --on liquidio4"),
        ("console", "$ nicol lab run xenic-fig80"),
        ("console", "$ nicol serve --nods 3"),
        ("console", "$ cargo xtask nothing"),
        ("console", "$ cargo run --release -p nicol-store --example nothing"),
        ("console", "$ make install"),
        ("console", "$ redis-cli get a\n(nil)"),
        ("console", &format!("{server} set a b\nKO")),
        ("console", &format!("{server} get a\n\"b\"")),
    ] {
        let mut page = Page::new("wrong.md");
        page.check(&format!("```{kind}\n{lines}\n```\n"));
        assert_eq!(page.wrong.len(), 1, "{kind}: {lines}: {:?}", page.wrong);
    }
    let mut page = Page::new("right.md");
    let session = format!(
        "{server} get a\n(nil)\n{PROMPT}mset a 1 b \"2 3\"\nOK\n{PROMPT}mget a b c\n1) \"1\"\n2) \"2 3\"\n3) (nil)"
    );
    page.check(&format!("```console\n{session}\n$ nicol check run.jsonl  # judge it\n```\n"));
    assert_eq!(page.wrong, [""; 0]);
}
