//! Every value of every setting of every system, hidden ones as well, and what stands beyond.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use nicol_bench::refused::{Refused, Unfit};
use nicol_bench::settings::{EngineSettings, Setting, Settings, Sizes, SystemConfig, apply};
use nicol_bench::systems;
use nicol_commit::rdma_occ::{self, RdmaOccConfig};
use nicol_commit::xenic::XenicConfig;
use nicol_core::ids::{Key, ShardId, TableId};
use nicol_core::records::RecordSource;
use nicol_core::units::Bytes;
use nicol_core::view::{ShardMap, View};
use nicol_engines::EngineConfig;
use nicol_minos::MinosConfig;
use nicol_offpath::drtm_kv::DrtmKvConfig;
use nicol_offpath::linefs::LineFsConfig;
use nicol_prism::abdlock::AbdlockConfig;
use nicol_prism::kv::KvConfig;
use nicol_prism::pilaf::PilafConfig;
use nicol_prism::rs::RsConfig;
use nicol_prism::tx::TxConfig;
use nicol_sim::{Profile, SimConfig};

/// A check of a table, for the systems that have it: what is wrong.
trait Check {
    fn of<C: SystemConfig + Debug>(&self, systems: &[&'static str]) -> Vec<String>;
}

/// Makes it of all tables.
fn on_all(check: &impl Check) {
    let mut left: BTreeSet<&'static str> = systems::all().map(|system| system.name).collect();
    let mut take = |is: &dyn Fn(&str) -> bool| {
        let taken: Vec<_> = left.iter().copied().filter(|name| is(name)).collect();
        assert!(!taken.is_empty());
        left.retain(|name| !taken.contains(name));
        taken
    };
    let wrong = [
        check.of::<XenicConfig>(&take(&|name| name == "xenic")),
        check.of::<RdmaOccConfig>(&take(&|name| rdma_occ::SYSTEMS.contains(&name))),
        check.of::<EngineConfig>(&take(&|name| systems::find(name).unwrap().one_server)),
        check.of::<MinosConfig>(&take(&|name| name.starts_with("minos-"))),
        check.of::<LineFsConfig>(&take(&|name| name.starts_with("linefs:"))),
        check.of::<DrtmKvConfig>(&take(&|name| name.starts_with("drtm-kv:"))),
        check.of::<KvConfig>(&take(&|name| name == "prism-kv")),
        check.of::<RsConfig>(&take(&|name| name == "prism-rs")),
        check.of::<TxConfig>(&take(&|name| name == "prism-tx")),
        check.of::<PilafConfig>(&take(&|name| name.starts_with("pilaf"))),
        check.of::<AbdlockConfig>(&take(&|name| name.starts_with("abdlock"))),
    ];
    assert!(left.is_empty(), "which configuration have {left:?}?");
    assert_eq!(wrong.concat(), [""; 0]);
}

/// So many records, and capacity for as many more.
struct Rows(u64);

impl RecordSource for Rows {
    fn load(&self, _: &dyn ShardMap, _: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        (0..self.0).for_each(|row| each(Key::new(TableId(0), row), &[7; 16]));
    }

    fn records_per_shard(&self) -> u64 {
        self.0
    }

    fn growth_per_shard(&self) -> u64 {
        self.0
    }
}

/// The published configuration of a system with so many records.
fn published<C: SystemConfig>(system: &str, records: u64, live: bool) -> C {
    let source = &Rows(records);
    let nic_memory = (!live).then_some(Bytes(1 << 30));
    C::published(
        system,
        &Sizes { source, value_bytes: 16 + records as usize / 1_000, nic_memory, live },
    )
}

/// Its words, and both bounds of its numbers.
fn texts<C>(row: &Setting<C>) -> Vec<String> {
    let bounds = row.numbers.iter().flat_map(|range| [*range.start(), *range.end()]);
    let bounds = bounds.map(|bound| bound.to_string());
    row.words.iter().map(|word| (*word).to_owned()).chain(bounds).collect()
}

/// Settings that others need: none, or one of these, of those that the system has.
fn needs<C: SystemConfig>() -> Vec<Option<&'static str>> {
    let known = ["execution=read", "recovery=prepared", "scheduler=alnico", "scheduler=strife"];
    let table = C::table();
    let has = |setting: &&str| table.iter().any(|row| setting.split('=').next() == Some(row.name));
    [None].into_iter().chain(known.into_iter().filter(has).map(Some)).collect()
}

fn set<C: SystemConfig>(config: &mut C, settings: &[String]) -> Result<(), Refused> {
    apply(settings, config, &mut EngineSettings::default())
}

/// A value of a setting that a system accepts changes what it says, and nothing that another
/// setting says.
struct Effects;

impl Effects {
    /// Sets every value of one system, after `need`. Yields the settings that it accepts.
    fn of_one<C: SystemConfig + Debug>(
        system: &str,
        need: Option<&str>,
        wrong: &mut Vec<String>,
    ) -> Vec<String> {
        let mut plain: C = published(system, 1_000, false);
        let need: Vec<String> = need.into_iter().map(str::to_owned).collect();
        set(&mut plain, &need).unwrap();
        let mut seen = BTreeMap::from([(format!("{plain:?}"), "no setting".to_owned())]);
        let mut accepted = Vec::new();
        for row in C::table() {
            for text in texts(&row) {
                let mut config = plain.clone();
                let setting = format!("{}={text}", row.name);
                if set(&mut config, std::slice::from_ref(&setting)).is_err() {
                    continue;
                }
                let after = row.value(&mut config);
                if (!row.is_hidden || after.is_some()) && after.as_ref() != Some(&text) {
                    wrong.push(format!("{system}: after {setting} it is {after:?}"));
                }
                if row.value(&mut plain).as_ref() != Some(&text)
                    && let Some(other) = seen.insert(format!("{config:?}"), setting.clone())
                {
                    wrong.push(format!("{system}, {need:?}: {setting} does the same as {other}"));
                }
                accepted.push(setting);
            }
        }
        accepted
    }
}

impl Check for Effects {
    fn of<C: SystemConfig + Debug>(&self, systems: &[&'static str]) -> Vec<String> {
        let (mut accepted, mut wrong) = (BTreeSet::new(), Vec::new());
        for system in systems {
            for need in needs::<C>() {
                accepted.extend(Self::of_one::<C>(system, need, &mut wrong));
            }
        }
        let all = C::table().into_iter().flat_map(|row| {
            let name = row.name;
            texts(&row).into_iter().map(move |text| format!("{name}={text}"))
        });
        let refused = all.filter(|setting| !accepted.contains(setting));
        wrong.extend(refused.map(|setting| format!("{systems:?}: nobody accepts {setting}")));
        wrong
    }
}

#[test]
fn every_value_of_every_setting_has_its_own_effect() {
    on_all(&Effects);
}

/// What is no value is refused with the field, what was given, and what there is.
struct Refusals;

impl Refusals {
    /// Values beyond the range.
    fn beyond<C>(row: &Setting<C>) -> Vec<String> {
        let range = row.numbers.iter();
        let bounds = range.flat_map(|range| [range.start().checked_sub(1), Some(range.end() + 1)]);
        let bounds = bounds.flatten().map(|bound| bound.to_string());
        let unlike = ["", "nonsense", "-1", "1.5", "99999999999999999999"].map(str::to_owned);
        bounds.chain(unlike).collect()
    }

    /// Is `refused` what it must be?
    fn is_right<C>(row: &Setting<C>, text: &str, refused: &Refused) -> bool {
        let Refused { field, value, is_setting, unfit: Unfit { remedy, .. } } = refused;
        let range = row.numbers.as_ref();
        let bounds = range.map(|range| format!("{} to {}", range.start(), range.end()));
        let all = row.words.iter().all(|word| remedy.contains(word));
        (*field, value.as_str(), *is_setting) == (row.name, text, true)
            && all
            && bounds.is_none_or(|bounds| remedy.contains(&bounds))
    }
}

impl Check for Refusals {
    fn of<C: SystemConfig + Debug>(&self, systems: &[&'static str]) -> Vec<String> {
        let mut wrong = Vec::new();
        for row in C::table() {
            for text in Self::beyond(&row) {
                let mut right = false;
                for (system, need) in systems
                    .iter()
                    .flat_map(|one| needs::<C>().into_iter().map(move |need| (one, need)))
                {
                    let mut config: C = published(system, 1_000, false);
                    let setting = format!("{}={text}", row.name);
                    let need = need.iter().map(|need| (*need).to_owned());
                    let settings: Vec<String> = need.chain([setting]).collect();
                    let refused = set(&mut config, &settings).expect_err(&settings.join(" "));
                    right |= Self::is_right(&row, &text, &refused);
                }
                if !right {
                    wrong.push(format!("{systems:?}: {}={text}", row.name));
                }
            }
        }
        wrong
    }
}

#[test]
fn what_is_no_value_is_refused_with_the_field_the_value_and_the_remedy() {
    on_all(&Refusals);
}

/// The default that help lists is the one that holds whatever the workload; or words say on what it
/// depends, or what holds where it is none of the values.
struct Defaults;

impl Check for Defaults {
    fn of<C: SystemConfig + Debug>(&self, systems: &[&'static str]) -> Vec<String> {
        let wrong = |row: Setting<C>| {
            let mut varies = false;
            let mut is_a_value = false;
            for system in systems {
                let [few, many, live] = [(1_000, false), (70_000, false), (1_000, true)]
                    .map(|(records, live)| row.value(&mut published::<C>(system, records, live)));
                varies |= few != many || few != live;
                is_a_value |= few.is_some();
            }
            let is_wrong = match row.default {
                Some(_) => is_a_value && !varies,
                None => varies,
            };
            is_wrong.then(|| format!("{systems:?}: {} varies: {varies}", row.name))
        };
        C::table().into_iter().filter_map(wrong).collect()
    }
}

#[test]
fn the_listed_default_is_the_one_that_holds() {
    on_all(&Defaults);
    let profile = Profile::load("liquidio3").unwrap();
    let tuning = SimConfig::new(View::new(2, 1, 1, 1).unwrap(), Arc::new(profile), 0).tuning;
    let EngineSettings { aggregation, dma_async, doorbell_batch, .. } =
        EngineSettings::default().as_worlds_have_them();
    assert_eq!(aggregation, Some(tuning.aggregation));
    assert_eq!(dma_async, Some(tuning.dma_async));
    assert_eq!(doorbell_batch, Some(tuning.doorbell_batch));
}

/// A table names each setting once, and says what it does.
struct Names;

impl Check for Names {
    fn of<C: SystemConfig + Debug>(&self, systems: &[&'static str]) -> Vec<String> {
        let (own, engines) = (C::table(), EngineSettings::table());
        let mut names: Vec<_> = own.iter().map(|row| (row.name, row.help)).collect();
        names.extend(engines.iter().map(|row| (row.name, row.help)));
        let count = |name: &str| names.iter().filter(|(known, _)| *known == name).count();
        let is_wrong = |(name, help): &(&str, &str)| help.is_empty() || count(name) > 1;
        let wrong = names.iter().copied().filter(is_wrong);
        wrong.map(|(name, _)| format!("{systems:?}: {name}")).collect()
    }
}

#[test]
fn a_table_names_each_setting_once_and_says_what_it_does() {
    on_all(&Names);
}

#[test]
fn a_number_may_have_leading_zeros() {
    let mut config: XenicConfig = published("xenic", 1_000, false);
    set(&mut config, &["homes_per_hint=04".to_owned(), "slack=007".to_owned()]).unwrap();
    assert_eq!((config.homes_per_hint.get(), config.slack), (4, 7));
}

#[test]
fn what_is_no_setting_is_refused_with_those_that_there_are() {
    let refused = |setting: &str| {
        let mut config: XenicConfig = published("xenic", 1_000, false);
        set(&mut config, &[setting.to_owned()]).unwrap_err().to_string()
    };
    for setting in ["slak=1", "slack", "=1"] {
        let told = refused(setting);
        assert!(told.starts_with(&format!("`settings` {setting}: ")), "{told}");
        assert!(told.contains("slack, ") && told.contains("dma_async"), "{told}");
        assert!(!told.contains("sabotage"), "{told}");
    }
    assert!(refused("slak=1").contains("did you mean 'slack'?"));
}
