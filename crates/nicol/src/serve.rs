//! `nicol serve`: an embedded replicated cluster behind RESP.

mod settings;

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Result, anyhow};
use nicol_bench::bench::refused_view;
use nicol_bench::memory;
use nicol_bench::store::{Found, Keeper, Stored};
use nicol_bench::systems::{ServeConfig, Served, System};
use nicol_core::units::Bytes;
use nicol_core::view::View;
use nicol_resp::{
    Address, FRONTS_MAX, KEY_BYTES_MAX, Server, ServerConfig, ServerInfo, StartError, Tls,
    TlsError, TlsFiles,
};
use nicol_rt::{LiveCluster, LiveConfig, LogDevice};

use self::settings::{Settings, settings};
pub use self::settings::{check_log_device, check_log_folder};
use crate::cli::ServeArgs;
use crate::{End, Usage, blame, environment_or_usage, interrupt, kept, limits, output};

/// How often the server looks whether an engine has failed, and at most between two looks at the
/// logs.
const POLL: Duration = Duration::from_millis(100);
/// How long the heap keeps memory that is free, in case that it is needed again (decision 0187).
const HEAP_KEEPS: Duration = Duration::from_millis(100);
/// File descriptors that the server opens besides those that it has when its store runs, and that
/// are not clients': the listener, event queues, and the new files of logs that are shortened.
const MORE_DESCRIPTORS: u64 = 24;
/// Cores from which on idle engines wait for work before they sleep.
const ROOMY: usize = 8;
/// Bytes of a record besides its key and its value, at most.
const RECORD_HEAD: usize = 64;

/// Resident bytes of the process besides the `used` ones of its store.
fn besides(used: u64) -> u64 {
    memory::Resident::read().map_or(0, |resident| resident.now.saturating_sub(used))
}

/// The view in which the cluster begins.
///
/// # Errors
/// If there is no such cluster, or its records need more memory than the machine has.
fn view_of(settings: &Settings) -> Result<View> {
    let view = View::new(settings.nodes, settings.replicas, 1, 1)
        .map_err(|error| Usage(refused_view(error)))?;
    let copies = settings.records.saturating_mul((view.nodes() * view.replicas()) as u64);
    memory::refuse_beyond_machine(
        copies,
        System::SERVED_VALUE_BYTES,
        &["records", "replicas", "nodes"],
    )
    .map_err(|refused| Usage(refused.into()))?;
    Ok(view)
}

/// Serves until the process is asked to end, or an engine fails. Clients that wait for a
/// transaction at that time get their replies first.
pub fn run(args: &ServeArgs) -> Result<End> {
    let asked = interrupt::flag()?;
    let settings = settings(args).inspect(Settings::log).map_err(environment_or_usage)?;
    let starting =
        interrupt::Starting::begin("asked to end while it started: it has served nobody")?;
    let (drawn, run_id) = draw()?;
    let view = view_of(&settings)?;
    let mut config = front_config(&settings);
    config.tls = settings.tls.as_ref().map(load_tls).transpose()?;
    // Logs are read back, and rewritten, only for a server that can serve them.
    Server::check(&config).map_err(not_started)?;
    let store = match &settings.log_device {
        LogDevice::Memory => None,
        LogDevice::File { dir } => Some(kept::open(dir, settings.system)?),
    };
    // Keys that were there are found under the seed by which they were spread, and no other.
    let seed = store.as_ref().and_then(Stored::hash_seed).unwrap_or(drawn);
    take_over(&mut config, seed, store.as_ref());
    let found = store.as_ref().map(|store| store.found.clone()).unwrap_or_default();
    let free = limits::free_memory();
    nicol_rt::give_back_after(HEAP_KEEPS);
    let Served { backend, world, mut keeper } = settings
        .system
        .serve(serve_config(&settings, view.with_hash_seed(seed), store))
        .map_err(not_launched)?;
    starting.end();
    let (clients, few) = clients(config.limits.clients);
    config.limits.clients = clients;
    let mut info = server_info(&settings, &run_id, keeper.as_ref(), found);
    info.process_bytes = besides(backend.memory().used().0);
    info.config_file = args.config.clone();
    config.threads = fronts(config.single, world.threads());
    let warned = warnings(&settings, world.threads(), free);
    let attach = |thread, front| world.attach(thread, front).map_err(io::Error::other);
    let server = Server::start_on(config, backend, info, attach).map_err(not_started)?;
    output::tell(&banner(&settings, server.address()));
    few.iter().chain(&warned).for_each(|line| warn(line));
    let look = keeper.as_ref().map_or(POLL, |keeper| keeper.look_every().min(POLL));
    let mut failed = None;
    let ended = world.run_until(
        || {
            failed = keeper.as_mut().and_then(|keeper| tend(keeper, &world).err());
            failed.is_some() || asked.flag.load(Ordering::SeqCst)
        },
        look,
    );
    if ended.is_ok() && failed.is_none() {
        output::tell("asked to end: answering what was asked before");
        tracing::info!(cause = "a signal", "shutting down");
    }
    if let Some(keeper) = &mut keeper {
        keeper.release();
    }
    // The engines run until the last reply has been written, or the drain has taken too long. An
    // engine that has failed answers nobody.
    if ended.is_ok() {
        server.stop()
    } else {
        server.abandon()
    }
    let drained = server.join();
    ended?;
    failed.map_or(Ok(()), Err)?;
    drained.map_err(|fronts| anyhow!("{fronts} of the RESP fronts panicked"))?;
    world.stop()?;
    if let Some(line) = keeper.and_then(Keeper::finish) {
        output::tell(&line);
    }
    Ok(End::Held)
}

/// The store's lines of INFO.
fn server_info(
    settings: &Settings,
    run_id: &str,
    keeper: Option<&Keeper>,
    found: Found,
) -> ServerInfo {
    let mut info = ServerInfo::new(env!("CARGO_PKG_VERSION"), run_id);
    (info.nodes, info.replicas) = (settings.nodes, settings.replicas);
    info.cpu = limits::cpu_time;
    info.shutdown = Some(interrupt::ask_to_end);
    info.resident = || memory::Resident::read().map(|resident| resident.now);
    let synced = settings.may_lose().is_none();
    info.persistence = keeper.map(|keeper| kept::persistence(keeper, found, synced));
    info
}

/// The number of clients that the system has file descriptors for, of those `wanted`; what to say
/// if it is smaller.
fn clients(wanted: usize) -> (usize, Option<String>) {
    let own = limits::open_descriptors() + MORE_DESCRIPTORS;
    let granted = limits::raise_descriptors(wanted as u64 + own);
    let clients = usize::try_from(granted.saturating_sub(own)).unwrap_or(wanted);
    let clients = clients.clamp(1, wanted);
    let few = clients < wanted;
    let text = "clients at most: the system grants no more file descriptors (ulimit -n";
    (clients, few.then(|| format!("{clients} {text} {granted})")))
}

/// The fronts, before anything is read back and before the machine has said how many clients and
/// threads there may be.
fn front_config(settings: &Settings) -> ServerConfig {
    let mut config = ServerConfig::new(settings.listen.clone());
    if let Some(single) = settings.system.single {
        // A record holds its key as well.
        config.single = true;
        config.limits.value_bytes = single.record_bytes - KEY_BYTES_MAX - RECORD_HEAD;
    }
    config.password = settings.password.clone();
    config.acl_file = settings.acl_file.clone();
    let of_clients = settings.max_client_memory.unwrap_or_else(|| Bytes(settings.memory().0 / 8));
    config.limits.client_bytes = usize::try_from(of_clients.0).unwrap_or(usize::MAX);
    config.limits.clients = settings.max_clients.map_or(config.limits.clients, |max| max as usize);
    config.eviction = settings.max_memory_policy;
    config.eviction_samples = settings.max_memory_samples;
    if let Some(time) = settings.transaction_time {
        config.limits.transaction_time = time;
    }
    config
}

/// Sets what the fronts must know of a store: the seed by which its keys are spread, how many there
/// are, and those with a deadline.
fn take_over(config: &mut ServerConfig, seed: u64, store: Option<&Stored>) {
    config.hash_seed = seed;
    config.keys = store.map(kept::keys).unwrap_or_default();
    if !config.single {
        config.expiring = store.map(kept::expiring).unwrap_or_default();
    }
}

/// What was asked for and the system, the machine or the cluster does not have: `threads` engine
/// threads run, and so much memory was `free` at the start.
fn warnings(settings: &Settings, threads: usize, free: Option<Bytes>) -> Vec<String> {
    let mut lines = Vec::new();
    if let (LogDevice::File { .. }, Some(what)) = (&settings.log_device, settings.may_lose()) {
        lines.push(format!("warning: --system {}: {what}", settings.system.name));
    }
    if let Some(asked) = settings.threads.filter(|asked| *asked > threads) {
        lines.push(format!(
            "warning: --threads {asked}: {threads} run, one for each engine; more --nodes have more engines"
        ));
    }
    if let (Some(asked), Some(free)) = (settings.max_memory, free)
        && asked > free
    {
        lines.push(format!(
            "warning: --max-memory: {} MB, and {} MB are free: the system may end the process before it \
             refuses writes; give less",
            asked.0 >> 20,
            free.0 >> 20
        ));
    }
    lines
}

fn serve_config(settings: &Settings, view: View, store: Option<Stored>) -> ServeConfig {
    // Half of the cores: the kernel's network stack, logs and clients need the others.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = Some(settings.threads.unwrap_or((cores / 2).max(1)));
    ServeConfig {
        system: settings.system.name,
        capacity_per_shard: settings.records,
        memory: settings.memory(),
        procedures: nicol_resp::procedures(),
        live: live_config(view, threads, cores),
        store,
        log_bytes_max: settings.log_bytes,
    }
}

/// How engines run on a machine with so many cores. On few, the kernel and the clients want those
/// on which an idle engine would wait; on many, an engine that waits saves a wake-up.
fn live_config(view: View, threads: Option<usize>, cores: usize) -> LiveConfig {
    let config = LiveConfig { threads, seed: view.hash_seed(), ..LiveConfig::new(view) };
    match cores < ROOMY {
        true => LiveConfig { spin: false, ..config },
        false => config,
    }
}

/// The fronts on so many engine threads. A store of single operations has one: its procedures are
/// right only if nobody else is at their record, which each front's gate sees to among its own
/// clients.
fn fronts(single: bool, threads: usize) -> usize {
    if single { 1 } else { threads.min(FRONTS_MAX) }
}

/// Keeps the store's folder short, and tells what is to be told.
fn tend(keeper: &mut Keeper, world: &LiveCluster) -> Result<()> {
    let saves = keeper.saves();
    if let Some(line) = keeper.tend(world)? {
        warn(&line);
    }
    if keeper.saves() > saves {
        tracing::info!(saves = keeper.saves(), log_bytes = world.log_bytes(), "logs shortened");
    }
    Ok(())
}

/// Tells and logs what someone should look at.
fn warn(line: &str) {
    output::tell(line);
    tracing::warn!("{line}");
}

fn banner(settings: &Settings, address: &Address) -> String {
    tracing::info!(%address, "listening");
    let kept = match &settings.log_device {
        LogDevice::Memory => "the data is in memory only".to_owned(),
        LogDevice::File { dir } => format!("the data is kept in {}", dir.display()),
    };
    let Settings { nodes, replicas, .. } = settings;
    format!(
        "serving {} with {} on {address}; {kept}; end with an interrupt (Ctrl-C)",
        output::many(*nodes, "node"),
        output::many(*replicas, "replica")
    )
}

/// A cluster that did not start: for want of a file or a thread, or by a flag that does not fit.
fn not_launched(error: anyhow::Error) -> anyhow::Error {
    let system = error.chain().any(|cause| cause.is::<std::io::Error>());
    if system { error } else { blame(error) }
}

/// A server that did not start: for want of a password, or of a socket.
fn not_started(error: StartError) -> anyhow::Error {
    match error {
        StartError::Io { .. } => anyhow::Error::new(error).context("--listen"),
        StartError::Unprotected(_) => Usage(anyhow::Error::new(error).context("--listen")).into(),
        StartError::Password { .. } => {
            Usage(anyhow::Error::new(error).context("--password")).into()
        }
        StartError::Acl(_) | StartError::AclPassword { .. } => {
            Usage(anyhow::Error::new(error).context("--acl-file")).into()
        }
        error => Usage(error.into()).into(),
    }
}

fn load_tls(files: &TlsFiles) -> Result<Tls> {
    Tls::load(files).map_err(|error| {
        let flag = match &error {
            TlsError::NoAuthorities => "--tls-ca-cert-file",
            TlsError::File { file, .. } | TlsError::Refused { file, .. } => match file {
                file if *file == files.certificate => "--tls-cert-file",
                file if *file == files.key => "--tls-key-file",
                _ => "--tls-ca-cert-file",
            },
        };
        Usage(anyhow::Error::new(error).context(flag)).into()
    })
}

/// Draws the secret seed of the key hashes and, apart from it, the run id that INFO shows to every
/// client: 40 hexadecimal digits. A client that knew the seed could choose keys that are all in one
/// segment.
fn draw() -> Result<(u64, String)> {
    let mut run_id = [0; 20];
    getrandom::fill(&mut run_id)
        .and_then(|()| getrandom::u64())
        .map(|seed| (seed, run_id.iter().map(|byte| format!("{byte:02x}")).collect()))
        .map_err(|error| anyhow!("the system's random source: {error}"))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use nicol_bench::systems;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::Arc;

    use nicol_resp::{Backend, Done, Request};

    use super::*;
    use crate::flags;

    /// A store that answers nothing.
    struct Silent;

    impl Backend for Silent {
        fn submit(&self, _connection: u64, _request: Arc<Request>, _done: Done) {}
    }

    #[test]
    fn a_system_whose_tables_do_not_grow_refuses_to_serve() {
        let args = ServeArgs { system: Some("farm".to_owned()), ..ServeArgs::default() };
        let error = flags::told(&settings(&args).unwrap_err());
        assert!(error.contains("--system farm") && error.contains("fixed size"), "{error}");
    }

    #[test]
    fn what_is_not_there_is_said() {
        let asks = |text: &[&str]| {
            let command = clap::Command::new("serve").no_binary_name(true);
            let found = <ServeArgs as clap::Args>::augment_args(command).get_matches_from(text);
            settings(&clap::FromArgMatches::from_arg_matches(&found).unwrap())
        };
        let asked = asks(&["--threads", "7", "--max-memory", "3mb"]).unwrap();
        let lines = warnings(&asked, 6, Some(Bytes(2 << 20)));
        assert!(lines[0].contains("--threads 7: 6 run"), "{lines:?}");
        assert!(lines[1].contains("--max-memory: 3 MB, and 2 MB are free"), "{lines:?}");
        assert!(warnings(&asked, 7, Some(Bytes(3 << 20))).is_empty());
        assert!(warnings(&asks(&[]).unwrap(), 1, Some(Bytes(0))).is_empty());
        let told = |system: &str, device: &str| {
            let asked = asks(&["--system", system, "--log-device", device]).unwrap();
            warnings(&asked, 1, None).concat()
        };
        let folder = format!("file:{}", std::env::temp_dir().display());
        assert!(told("minos-b:renf", &folder).contains("none that a GET has returned"));
        for system in ["minos-b:event", "minos-o:scope"] {
            assert!(told(system, &folder).contains("a crash may take the latest writes"));
            assert_eq!(told(system, "memory"), "");
        }
        for system in ["xenic", "minos-b:synch", "minos-o:strict"] {
            assert_eq!(told(system, &folder), "");
        }
        for file in ["/dev/null", "/dev/null/below/it"] {
            let error = asks(&["--log-device", &format!("file:{file}")]).unwrap_err().to_string();
            let named = format!("--log-device file:{file}: /dev/null is no folder; give");
            assert!(error.starts_with(&named), "{error}");
        }
        let below = std::env::temp_dir().join("nicol-not-made-yet/at/all");
        assert!(asks(&["--log-device", &format!("file:{}", below.display())]).is_ok());
    }

    #[test]
    fn only_a_store_of_transactions_has_a_front_on_each_thread() {
        assert_eq!((fronts(false, 3), fronts(true, 3)), (3, 1));
        assert_eq!(fronts(false, 1_000), FRONTS_MAX);
    }

    #[test]
    fn a_cluster_without_clients_sleeps() {
        let view = View::new(3, 3, 1, 1).unwrap();
        let Served { backend, world, .. } = systems::find("xenic")
            .unwrap()
            .serve(ServeConfig {
                system: "xenic",
                capacity_per_shard: 1_000,
                memory: Bytes(1 << 30),
                procedures: nicol_resp::procedures(),
                live: LiveConfig { threads: Some(2), ..LiveConfig::new(view) },
                store: None,
                log_bytes_max: 0,
            })
            .unwrap();
        let config = ServerConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)).into());
        let info = ServerInfo::new("0.0.0", "f00d");
        let attach = |thread, front| world.attach(thread, front).map_err(io::Error::other);
        let server = Server::start_on(config, backend, info, attach).unwrap();
        // A client comes and goes; the threads that worked for it must park again.
        let mut client = TcpStream::connect(server.address().to_string()).unwrap();
        client.write_all(b"SET k v PX 1\r\nGET k\r\nQUIT\r\n").unwrap();
        let mut told = String::new();
        client.read_to_string(&mut told).unwrap();
        assert!(told.starts_with("+OK\r\n") && told.ends_with("+OK\r\n"), "{told}");
        std::thread::sleep(Duration::from_millis(600));
        server.stop();
        server.join().unwrap();
        let report = world.stop().unwrap();
        // A sleep takes 100 ms if nobody calls. A thread that never parks has none, and one that is
        // woken for nothing has thousands.
        assert!(report.parks.iter().all(|parks| (2..200).contains(parks)), "{:?}", report.parks);
        // One turn per sleep, and a few thousand to fall asleep after each piece of work.
        assert!(report.turns.iter().all(|&turns| turns < 200_000), "{:?}", report.turns);
    }

    #[test]
    fn info_tells_a_run_id_and_not_the_seed() {
        let (seed, run_id) = draw().unwrap();
        let mut config = ServerConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)).into());
        config.hash_seed = seed;
        let info = ServerInfo::new("0.0.0", &run_id);
        let server = Server::start(config, Arc::new(Silent), info).unwrap();
        let mut client = TcpStream::connect(server.address().to_string()).unwrap();
        client.write_all(b"INFO\r\nQUIT\r\n").unwrap();
        let mut told = String::new();
        client.read_to_string(&mut told).unwrap();
        let shown = told.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap();
        assert_eq!(shown, run_id);
        assert_eq!(shown.len(), 40);
        assert!(shown.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
        for form in [format!("{seed:016x}"), format!("{:016x}", seed.swap_bytes())] {
            assert!(!told.contains(&form), "INFO holds the seed {seed:016x}");
        }
        assert!(!told.contains(&seed.to_string()), "INFO holds the seed {seed}");
        assert_ne!(draw().unwrap().1, run_id, "every run has its own id");
    }
}
