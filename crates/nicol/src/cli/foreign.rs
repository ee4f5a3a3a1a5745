//! What users of Redis, of its load generators and of other benchmarks type first, and what there
//! is here instead: a tip below clap's error.

use std::ffi::OsString;

use clap::Parser;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use nicol_bench::workloads::WORKLOADS;

use super::Cli;

/// Names that others have for something, and the tip.
type Tips = &'static [(&'static [&'static str], &'static str)];

/// Flags of redis-server.
const SERVE: Tips = &[
    (&["--unixsocket", "--socket", "-s"], "a socket in the file system is '--listen unix:PATH'"),
    (&["--masterauth", "-a"], "give '--password PASSWORD'"),
    (&["--user"], "users stand in the file of '--acl-file FILE', a line 'user NAME RULES' each"),
    (
        &["--appendonly", "--appendfsync", "--save", "--dir", "--dbfilename", "--appendfilename"],
        "data that is to survive is kept in DIR by '--log-device file:DIR'",
    ),
    (&["--memory", "-m"], "the memory of the data is '--max-memory SIZE', as in 2gb"),
    (&["--io-threads", "-t"], "engine threads are '--threads N'"),
    (
        &["--replicaof", "--slaveof", "--cluster-enabled", "--sentinel"],
        "the cluster is inside this process: '--nodes N' and '--replicas N'",
    ),
    (&["--daemonize", "--pidfile", "--supervised"], "it stays in the foreground: 'nicol serve &'"),
    (&["--logfile", "--loglevel"], "messages go to standard error: 'nicol serve 2> FILE'"),
    (
        &["--tls-port", "--tls-cluster", "--tls-replication"],
        "with '--tls-cert-file FILE' and '--tls-key-file FILE' clients speak TLS at '--listen ADDR'",
    ),
    (&["--databases"], "there are 16 databases, 0 to 15"),
    (&["--loadmodule"], "it has no modules"),
    (&["--protected-mode"], "only the loopback needs no '--password PASSWORD'"),
];

/// Flags of redis-benchmark, memtier_benchmark and others.
const BENCH: Tips = &[
    (
        &["--host", "--server", "--port", "--unix-socket", "-h", "-p", "-s", "-a", "--uri"],
        "this measures a cluster inside this process; a server is 'nicol serve', which \
         'redis-benchmark -p 6380' measures",
    ),
    (
        &["-n", "--requests", "--operations", "--ops", "--iterations", "--operationcount"],
        "the number of transactions is '--transactions N'",
    ),
    (
        &["--test-time", "--duration", "--time", "--runtime", "-d"],
        "the time to measure is '--seconds S'",
    ),
    (&["-c", "--connections", "--concurrency"], "the clients of each node are '--clients N'"),
    (&["-P", "--pipeline"], "a client has one transaction at a time: give more '--clients N'"),
    (
        &["-t", "--tests", "-w", "--workload", "--benchmark"],
        "the workload has no flag: 'nicol bench smallbank'",
    ),
    (
        &["-r", "--keyspace", "--key-maximum", "--recordcount", "--scale"],
        "the records of each node are '--records N'",
    ),
    (&["--data-size", "--datasize", "--value-size"], "bytes of a value are '--value-bytes N'"),
    (
        &["--ratio", "--read-ratio", "--reads"],
        "reads are '--read-percent P', or '--mix A' to F of ycsb",
    ),
    (
        &["--rate-limiting", "--rps", "--qps", "--target", "--throughput"],
        "the rate of an open loop is '--rate PER_SECOND'",
    ),
    (&["--key-pattern", "--skew", "--theta"], "skew is '--zipf 99', in hundredths"),
    (&["--json", "--csv", "-o", "--output"], "give '--format json' or csv, and redirect it"),
    (
        &["--profile", "--hardware", "--world", "--nic"],
        "the hardware is '--on PROFILE': 'nicol profiles list' has the names",
    ),
    (
        &["--protocol", "--engine", "--algorithm"],
        "the protocol is '--system NAME': 'nicol systems' has the names",
    ),
    (&["--replication", "--replication-factor"], "copies of each shard are '--replicas N'"),
    (&["--runs", "--repeat", "--seeds"], "a run has one '--seed N'; many seeds: 'nicol sweep'"),
];

/// Commands of others.
const COMMANDS: Tips = &[
    (&["run", "load", "test", "perf"], "a workload is run by 'nicol bench WORKLOAD'"),
    (&["start", "up", "redis", "redis-server"], "data is served by 'nicol serve'"),
    (&["version"], "the version is told by 'nicol --version'"),
    (&["simulate", "sim"], "a simulation is 'nicol bench WORKLOAD --on PROFILE'"),
    (
        &["experiment", "experiments", "figure", "figures", "reproduce"],
        "a figure of a paper is made by 'nicol lab run ID': 'nicol lab list' has the ids",
    ),
    (
        &["world", "worlds", "hardware", "nics"],
        "the hardware is listed by 'nicol profiles list', and chosen by 'nicol bench WORKLOAD --on NAME'",
    ),
    (&["list", "ls"], "see 'nicol systems', 'nicol profiles list' and 'nicol lab list'"),
];

/// The command line; ends the process if it is none, or asks for help.
pub fn parse() -> Cli {
    let words: Vec<OsString> = std::env::args_os().collect();
    Cli::try_parse_from(&words).unwrap_or_else(|error| with_tip(error, &words).exit())
}

/// The error, with a tip if we know what its user is looking for.
fn with_tip(mut error: Error, words: &[OsString]) -> Error {
    let words: Vec<_> = words.iter().skip(1).map(|word| word.to_string_lossy()).collect();
    let kind = match error.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        _ => return error,
    };
    let Some(ContextValue::String(found)) = error.get(kind) else { return error };
    let command = words.first().map(AsRef::as_ref).unwrap_or_default();
    let Some(tip) = tip(command, &words, found) else { return error };
    // Those name what is spelt alike.
    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::SuggestedSubcommand);
    error.remove(ContextKind::Usage);
    let tip = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
    error.insert(ContextKind::Suggested, tip);
    error
}

/// What to say of `found`, which `command` does not know.
fn tip<W: AsRef<str>>(command: &str, words: &[W], found: &str) -> Option<String> {
    let among = |tips: Tips| {
        let (_, tip) = tips.iter().find(|(names, _)| names.contains(&found))?;
        Some((*tip).to_owned())
    };
    match command {
        "serve" if ["--port", "-p", "--bind", "--host"].contains(&found) => {
            Some(format!("write address and port together: '--listen {}'", listen(words)))
        }
        "serve" if !found.starts_with('-') => {
            let file = "redis.conf is not read: give flags, or '--config FILE' with their names, as \
                        in 'listen = \"127.0.0.1:6379\"'";
            Some(file.to_owned())
        }
        "serve" => among(SERVE),
        "bench" | "sweep" => among(BENCH),
        name if name == found && WORKLOADS.iter().any(|(workload, _)| *workload == name) => {
            Some(format!("a workload is run by 'nicol bench {name}'"))
        }
        name if name == found => among(COMMANDS),
        _ => None,
    }
}

/// Where a user of redis-server who wrote these words wants to listen.
fn listen<W: AsRef<str>>(words: &[W]) -> String {
    let value = |names: [&str; 2]| {
        let words = || words.iter().map(AsRef::as_ref);
        let behind = words().zip(words().skip(1)).find(|(name, _)| names.contains(name));
        let joined = || words().find_map(|word| word.strip_prefix(names[0])?.strip_prefix('='));
        behind.map(|(_, value)| value).or_else(joined)
    };
    let port = value(["--port", "-p"]).and_then(|port| port.parse().ok()).unwrap_or(6379_u16);
    let address = value(["--bind", "--host"]).and_then(|address| address.parse().ok());
    std::net::SocketAddr::new(address.unwrap_or([127, 0, 0, 1].into()), port).to_string()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn told(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        with_tip(Cli::try_parse_from(&words).unwrap_err(), &words).to_string()
    }

    #[test]
    fn first_tries_of_others_are_shown_the_way() {
        for (line, tip) in [
            ("nicol serve --port 6379", "'--listen 127.0.0.1:6379'"),
            ("nicol serve --port=7000", "'--listen 127.0.0.1:7000'"),
            ("nicol serve -p 7000", "'--listen 127.0.0.1:7000'"),
            ("nicol serve --port 7000 --bind 0.0.0.0", "'--listen 0.0.0.0:7000'"),
            ("nicol serve --port 7000 --bind ::1", "'--listen [::1]:7000'"),
            ("nicol serve --bind 0.0.0.0", "'--listen 0.0.0.0:6379'"),
            ("nicol serve --bind 127.0.0.1", "'--listen 127.0.0.1:6379'"),
            ("nicol serve --appendonly yes", "'--log-device file:DIR'"),
            ("nicol serve --dir /tmp", "'--log-device file:DIR'"),
            ("nicol serve redis.conf", "'--config FILE'"),
            ("nicol serve --user x", "'--acl-file FILE'"),
            ("nicol bench -n 1000", "'--transactions N'"),
            ("nicol bench smallbank -c 50", "'--clients N'"),
            ("nicol bench ycsb --duration 5", "'--seconds S'"),
            ("nicol bench ycsb --server 127.0.0.1", "'nicol serve'"),
            ("nicol bench --workload smallbank", "'nicol bench smallbank'"),
            ("nicol bench smallbank --json", "'--format json'"),
            ("nicol sweep smallbank --protocol xenic", "'--system NAME'"),
            ("nicol smallbank", "'nicol bench smallbank'"),
            ("nicol run smallbank", "'nicol bench WORKLOAD'"),
            ("nicol experiment", "'nicol lab run ID'"),
            ("nicol worlds", "'nicol profiles list'"),
        ] {
            let told = told(line);
            assert!(told.contains("\n  tip: ") && told.contains(tip), "{line}: {told}");
            assert_eq!(told.matches("tip:").count(), 1, "{line}: {told}");
        }
        let slip = told("nicol bench smallbank --second 3");
        assert!(slip.contains("a similar argument exists: '--seconds'"), "{slip}");
    }

    #[test]
    fn no_tip_hides_a_flag_and_each_names_flags_that_there_are() {
        let cli = Cli::command();
        let of = |name: &str| cli.find_subcommand(name).unwrap();
        for (command, tips) in [("serve", SERVE), ("bench", BENCH)] {
            let flags: Vec<String> = of(command)
                .get_arguments()
                .flat_map(|one| one.get_long_and_visible_aliases().unwrap_or_default())
                .map(|long| format!("--{long}"))
                .collect();
            for (names, tip) in tips {
                assert!(names.iter().all(|name| !flags.contains(&(*name).to_owned())), "{names:?}");
                let named = tip.split(|at: char| !(at.is_ascii_alphanumeric() || at == '-'));
                for flag in named.filter(|word| word.starts_with("--")) {
                    assert!(flags.contains(&flag.to_owned()), "{names:?}: {tip}");
                }
            }
        }
    }
}
