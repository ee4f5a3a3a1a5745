//! What `nicol serve` is asked for: flags, environment, and the file of `--config`.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nicol_bench::systems::{self, System};
use nicol_core::units::Bytes;
use nicol_resp::{Address, ClientCertificates, Policy, SAMPLES, TlsFiles};
use nicol_rt::LogDevice;
use serde::Deserialize;

use crate::cli::{
    AuthClients, EVICTION_SAMPLES, LOG_BYTES, MAX_CLIENTS, ServeArgs, TRANSACTION_MS, replicas,
};
use crate::limits;

/// Bytes of logs from which on they are shortened: some 100 bytes a record, three replicas, and a
/// few million writes.
const LOG_BYTES_DEFAULT: u64 = 1 << 30;

/// Memory of a store where the system does not say what is free.
const MEMORY_UNKNOWN: Bytes = Bytes(4 << 30);

/// Nodes of a cluster that keeps several copies.
const NODES: usize = 3;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    system: Option<String>,
    nodes: Option<usize>,
    replicas: Option<usize>,
    listen: Option<String>,
    password: Option<String>,
    acl_file: Option<PathBuf>,
    records: Option<u64>,
    max_memory: Option<String>,
    max_memory_policy: Option<String>,
    max_memory_samples: Option<u32>,
    max_client_memory: Option<String>,
    max_clients: Option<u64>,
    tls_cert_file: Option<PathBuf>,
    tls_key_file: Option<PathBuf>,
    tls_ca_cert_file: Option<PathBuf>,
    tls_auth_clients: Option<AuthClients>,
    threads: Option<usize>,
    log_device: Option<String>,
    transaction_ms: Option<u64>,
    log_bytes: Option<u64>,
}

/// The settings of a server, after file, environment and flags.
#[derive(Debug)]
pub struct Settings {
    pub system: &'static System,
    pub nodes: usize,
    pub replicas: usize,
    pub listen: Address,
    pub password: Option<String>,
    pub acl_file: Option<PathBuf>,
    pub records: u64,
    pub max_memory: Option<Bytes>,
    pub max_memory_policy: Policy,
    pub max_memory_samples: u32,
    pub max_client_memory: Option<Bytes>,
    pub max_clients: Option<u64>,
    pub tls: Option<TlsFiles>,
    pub threads: Option<usize>,
    pub log_device: LogDevice,
    pub transaction_time: Option<Duration>,
    pub log_bytes: u64,
}

impl Settings {
    /// The acknowledged writes that a crash may take, in words; `None`: none that is in a log.
    pub fn may_lose(&self) -> Option<&'static str> {
        self.system.single.and_then(|single| single.may_lose)
    }

    /// The memory for the data of all nodes.
    pub fn memory(&self) -> Bytes {
        self.max_memory.unwrap_or_else(memory_by_default)
    }

    /// Logs what is to be served, but for the password.
    pub fn log(&self) {
        tracing::info!(
            system = self.system.name,
            nodes = self.nodes,
            replicas = self.replicas,
            log_device = ?self.log_device,
            "starting"
        );
        tracing::debug!(
            records = self.records,
            max_memory = ?self.max_memory,
            transaction_time = ?self.transaction_time,
            log_bytes = self.log_bytes,
            "settings"
        );
    }
}

/// The memory of a store of which nothing is said: the rest is for clients, for the allocator's own
/// use and for other programs.
fn memory_by_default() -> Bytes {
    limits::free_memory().map_or(MEMORY_UNKNOWN, |free| Bytes(free.0 / 4 * 3))
}

/// The settings of the flags of `args` and of the file of `--config`.
pub fn settings(args: &ServeArgs) -> Result<Settings> {
    let file = args.config.as_deref().map(read).transpose()?.unwrap_or_default();
    let system = args.system.as_deref().or(file.system.as_deref()).unwrap_or("xenic");
    let system = systems::find(system).context("--system")?;
    system.ensure_serves()?;
    // One copy gains nothing from a second node: one server is the paper's.
    let one_copy = system.single.is_some_and(|single| single.one_copy);
    let nodes = args.nodes.or(file.nodes).unwrap_or(if one_copy { 1 } else { NODES });
    let records = args.records.or(file.records).unwrap_or(1_000_000);
    ensure!((1..=1 << 32).contains(&records), "--records {records}: give 1 to 2^32");
    let threads = args.threads.or(file.threads);
    ensure!(threads != Some(0), "--threads 0: give at least 1");
    let transaction_ms = args.transaction_ms.or(file.transaction_ms);
    transaction_ms.map_or(Ok(()), |millis| within("transaction_ms", &millis, &TRANSACTION_MS))?;
    let log_bytes = args.log_bytes.or(file.log_bytes).unwrap_or(LOG_BYTES_DEFAULT);
    within("log_bytes", &log_bytes, &LOG_BYTES)?;
    let in_file = file.log_device.as_deref().map(str::parse).transpose();
    let log_device = args.log_device.clone().or(in_file.context("log_device in --config")?);
    let size = |name: &str, text: &Option<String>| {
        let size = text.as_deref().map(limits::size).transpose();
        size.map_err(|text| anyhow!("{name} in --config: {text}"))
    };
    let max_memory = args.max_memory.or(size("max_memory", &file.max_memory)?);
    let (max_memory_policy, max_memory_samples) = eviction(args, &file)?;
    let in_file = size("max_client_memory", &file.max_client_memory)?;
    let max_client_memory = args.max_client_memory.or(in_file);
    let max_clients = args.max_clients.or(file.max_clients);
    max_clients.map_or(Ok(()), |clients| within("max_clients", &clients, &MAX_CLIENTS))?;
    let asked = args.replicas.or(file.replicas);
    let replicas = replicas(asked.or(one_copy.then_some(1)), nodes);
    let log_device = log_device.unwrap_or_default();
    let in_file = file.listen.as_deref().map(str::parse).transpose();
    let listen = args.listen.clone().or(in_file.context("listen in --config")?);
    ensure!(
        log_device != LogDevice::Memory || args.log_bytes.or(file.log_bytes).is_none(),
        "--log-bytes: data in memory only has no log; give --log-device file:DIR as well"
    );
    ensure!(
        log_device == LogDevice::Memory || system.logs.is_some(),
        "--log-device: {} keeps no log, and its data lasts as long as its process; leave it out, or serve \
         a system that keeps one",
        system.name
    );
    check_log_device(&log_device, replicas)?;
    check_log_folder(&log_device)?;
    let tls = tls_files(args, &file)?;
    Ok(Settings {
        system,
        nodes,
        replicas,
        listen: listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 6380)).into()),
        password: args.password.clone().or(file.password),
        acl_file: args.acl_file.clone().or(file.acl_file),
        records,
        threads,
        log_device,
        max_memory,
        max_memory_policy,
        max_memory_samples,
        max_client_memory,
        max_clients,
        tls,
        transaction_time: transaction_ms.map(Duration::from_millis),
        log_bytes,
    })
}

/// Checks a number of the file of `--config`; clap has checked those of flags.
fn within<N>(name: &str, number: &N, range: &RangeInclusive<N>) -> Result<()>
where
    N: PartialOrd + Display,
{
    let (least, most) = (range.start(), range.end());
    ensure!(range.contains(number), "{name} = {number} in --config: give {least} to {most}");
    Ok(())
}

/// Which keys are evicted, and how many are looked at for each.
fn eviction(args: &ServeArgs, file: &File) -> Result<(Policy, u32)> {
    let in_file = file.max_memory_policy.as_deref().map(str::parse).transpose();
    let in_file = in_file.context("max_memory_policy in --config")?;
    let samples = args.max_memory_samples.or(file.max_memory_samples).unwrap_or(SAMPLES);
    if !EVICTION_SAMPLES.contains(&samples.into()) {
        let (least, most) = (EVICTION_SAMPLES.start(), EVICTION_SAMPLES.end());
        bail!("max_memory_samples = {samples} in --config: give {least} to {most}");
    }
    Ok((args.max_memory_policy.or(in_file).unwrap_or_default(), samples))
}

/// The files of TLS, if it was asked for: flags before the file of `--config`.
fn tls_files(args: &ServeArgs, file: &File) -> Result<Option<TlsFiles>> {
    let path = |flag: &Option<PathBuf>, in_file: &Option<PathBuf>| flag.clone().or(in_file.clone());
    let certificate = path(&args.tls_cert_file, &file.tls_cert_file);
    let key = path(&args.tls_key_file, &file.tls_key_file);
    let authorities = path(&args.tls_ca_cert_file, &file.tls_ca_cert_file);
    let clients = args.tls_auth_clients.or(file.tls_auth_clients).map(ClientCertificates::from);
    match (certificate, key) {
        (Some(certificate), Some(key)) => {
            Ok(Some(TlsFiles { certificate, key, authorities, clients }))
        }
        (Some(_), None) => bail!("--tls-cert-file: give --tls-key-file, its private key, as well"),
        (None, Some(_)) => bail!("--tls-key-file: give --tls-cert-file, its certificate, as well"),
        (None, None) => {
            let alone =
                if authorities.is_some() { "--tls-ca-cert-file" } else { "--tls-auth-clients" };
            ensure!(
                authorities.is_none() && clients.is_none(),
                "{alone}: there is no TLS without --tls-cert-file and --tls-key-file; give them as well"
            );
            Ok(None)
        }
    }
}

/// A write is acknowledged once its backups' files hold it.
pub fn check_log_device(device: &LogDevice, replicas: usize) -> Result<()> {
    ensure!(
        *device == LogDevice::Memory || replicas != 1,
        "--log-device: with --replicas 1 there is no backup whose file could hold a write before it \
         is acknowledged; give at least 2"
    );
    Ok(())
}

/// What stands where the folder of logs is to be must be one.
///
/// # Errors
/// If it is not: an error of the system.
pub fn check_log_folder(device: &LogDevice) -> io::Result<()> {
    let LogDevice::File { dir } = device else { return Ok(()) };
    // It is made with those above it that are missing.
    match dir.ancestors().find(|path| path.exists()).filter(|path| !path.is_dir()) {
        None => Ok(()),
        Some(there) => Err(io::Error::new(
            io::ErrorKind::NotADirectory,
            format!(
                "--log-device file:{}: {} is no folder; give a folder, or the path of one to be made",
                dir.display(),
                there.display()
            ),
        )),
    }
}

fn read(path: &Path) -> Result<File> {
    let text = fs::read_to_string(path).with_context(|| format!("--config {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("--config {}", path.display()))
}
