//! Smallbank: six short transactions on checking and savings accounts. [Xenic21 5.5]
//!
//! An object is 12 bytes, as in the paper: a key of 8 and a value of 4 (AMB-29), here a balance in
//! cents, a signed little-endian number of 32 bits. A balance that would leave that range makes the
//! transaction refuse. Weights and amounts are those of H-Store and DrTM+H.
//!
//! Both accounts of a customer are on one node, by a hash of the customer, as in DrTM+H's
//! implementation, from which Xenic's was made [5.1]. A transaction of one customer therefore
//! accesses a single shard.
//!
//! Each transaction outputs its change of the sum of all balances. The audit: the initial sum plus
//! all changes is the final sum.

use std::ops::Range;

use nicol_core::ids::{Key, NodeId, ShardId, TableId};
use nicol_core::records::{RecordSource, Records, TableSize};
use nicol_core::rng::Stream;
use nicol_core::txn::{Execute, ProcedureId, Procedures, Txn, Verdict};
use nicol_core::view::ShardMap;
use nicol_core::workload::Workload;

use crate::chooser::{Chooser, Distribution, PartsPerMillion};
use crate::mix::TransactionMix;
use crate::placement::{Violations, holds, mix, records_at_most};

/// Savings accounts, by customer.
pub const SAVINGS: TableId = TableId(TableId::PARTITIONED.0 + 1);
/// Checking accounts, by customer.
pub const CHECKING: TableId = TableId(TableId::PARTITIONED.0 + 2);
/// Bytes of a balance.
pub const BALANCE_BYTES: usize = 4;

/// Field ranges of [`Txn::output`].
pub mod output {
    use super::Range;
    /// The change of the sum of all balances, in cents: signed, little-endian.
    pub const CHANGE: Range<usize> = 0..8;
    /// Balance only: what the customer owns, in cents: signed, little-endian.
    pub const OWNED: Range<usize> = 8..16;
}

/// The values of a Smallbank run. The paper: 2,400,000 accounts per node, 90 % of the transactions
/// on 4 % of the accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallbankConfig {
    pub nodes: u16,
    /// Customers per node; each has two accounts.
    pub accounts_per_node: u64,
    /// The share of customers that are hot.
    pub hot_fraction: PartsPerMillion,
    /// The share of transactions that access hot customers only; the others access any.
    pub hot_probability: PartsPerMillion,
    /// May the execution logic run on NIC cores? [Xenic21 4.3.3]
    pub ship: bool,
}

impl SmallbankConfig {
    /// The paper's skew, shipped, with so many accounts.
    pub const fn paper(nodes: u16, accounts_per_node: u64) -> Self {
        Self {
            nodes,
            accounts_per_node,
            hot_fraction: PartsPerMillion::percent(4),
            hot_probability: PartsPerMillion::percent(90),
            ship: true,
        }
    }
}

/// The Smallbank workload. Customers are drawn across the whole cluster.
#[derive(Clone, Debug)]
pub struct Smallbank {
    config: SmallbankConfig,
    hot: Chooser,
    customers: Chooser,
}

/// The transaction types, in the order of [`Workload::kinds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Amalgamate,
    Balance,
    DepositChecking,
    SendPayment,
    TransactSavings,
    WriteCheck,
}

/// Share and amount in cents of each type. [DrTM+H, smallbank]
const MIX: TransactionMix<(Kind, i32), 6> = TransactionMix::new([
    (15, (Kind::Amalgamate, 0)),
    (15, (Kind::Balance, 0)),
    (15, (Kind::DepositChecking, 130)),
    (25, (Kind::SendPayment, 500)),
    (15, (Kind::TransactSavings, 2_020)),
    (15, (Kind::WriteCheck, 500)),
]);

/// The penalty for a check on an overdrawn account, in cents. [H-Store, WriteCheck]
const PENALTY: i32 = 100;
/// Initial balances, in cents.
const INITIAL: Range<i32> = 1_000_000..5_000_000;

impl Smallbank {
    /// The workload of `config`.
    ///
    /// # Panics
    /// If there are fewer than two customers or no hot ones, or a share is above one.
    pub fn new(config: SmallbankConfig) -> Self {
        let total = config.accounts_per_node * u64::from(config.nodes);
        assert!(total >= 2, "a payment needs two customers");
        assert!(config.hot_fraction <= PartsPerMillion::ALL, "a share is at most one");
        assert!(config.hot_probability <= PartsPerMillion::ALL, "a share is at most one");
        let hot = config.hot_fraction.of(total);
        Self {
            config,
            hot: Chooser::new(hot, Distribution::Uniform),
            customers: Chooser::new(total, Distribution::Uniform),
        }
    }

    fn accounts(&self) -> impl Iterator<Item = Key> {
        (0..self.customers.items())
            .flat_map(|customer| [account(SAVINGS, customer), account(CHECKING, customer)])
    }
}

/// The account of `customer` in `table`.
pub fn account(table: TableId, customer: u64) -> Key {
    Key::partitioned(table, mix(customer) as u16, customer)
}

/// The balance that `account` starts with.
fn initial(account: Key) -> i32 {
    let span = INITIAL.end.abs_diff(INITIAL.start);
    INITIAL.start + (mix(account.0) % u64::from(span)) as i32
}

fn parse_balance(value: &[u8]) -> Option<i32> {
    Some(i32::from_le_bytes(value.try_into().ok()?))
}

impl RecordSource for Smallbank {
    fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        for account in self.accounts().filter(|key| holds(shards, shard, *key)) {
            each(account, &initial(account).to_le_bytes());
        }
    }

    fn records_per_shard(&self) -> u64 {
        2 * records_at_most(self.customers.items(), self.config.nodes)
    }

    fn hashed_tables(&self) -> Vec<TableSize> {
        let accounts = self.records_per_shard() / 2;
        [SAVINGS, CHECKING].map(|table| TableSize::fixed(table, accounts, 4)).to_vec()
    }

    fn feature_shares(&self) -> Vec<(TableId, u32)> {
        vec![(SAVINGS, 1), (CHECKING, 1)]
    }
}

impl Workload for Smallbank {
    fn name(&self) -> &'static str {
        "smallbank"
    }

    fn procedures(&self) -> Procedures {
        const LOGIC: [Execute; 6] =
            [amalgamate, balance, deposit_checking, send_payment, transact_savings, write_check];
        Procedures::new(&LOGIC).some_only_read(Txn::declares_no_write)
    }

    fn next(&self, _home: NodeId, random: &mut Stream, txn: &mut Txn) -> usize {
        let (kind, amount) = MIX.draw(random);
        txn.reset(ProcedureId(kind as u16), &amount.to_le_bytes());
        txn.ship = self.config.ship;
        // One decision for both customers of a transaction, as in DrTM+H. A single hot customer
        // leaves no second one to choose.
        let is_hot = random.bernoulli(self.config.hot_probability.0) && self.hot.items() > 1;
        let customers = if is_hot { &self.hot } else { &self.customers };
        let customer = customers.draw(random);
        let (savings, checking) = (account(SAVINGS, customer), account(CHECKING, customer));
        let other = |random: &mut Stream| {
            account(CHECKING, customers.draw_untaken(random, |other| other == customer))
        };
        match kind {
            Kind::Amalgamate => {
                txn.write(savings);
                txn.write(checking);
                txn.write(other(random));
            }
            Kind::Balance => {
                txn.read(savings);
                txn.read(checking);
            }
            Kind::DepositChecking => {
                txn.write(checking);
            }
            Kind::SendPayment => {
                txn.write(checking);
                txn.write(other(random));
            }
            Kind::TransactSavings => {
                txn.write(savings);
            }
            Kind::WriteCheck => {
                txn.read(savings);
                txn.write(checking);
            }
        }
        kind as usize
    }

    fn kinds(&self) -> &'static [&'static str] {
        &[
            "amalgamate",
            "balance",
            "deposit_checking",
            "send_payment",
            "transact_savings",
            "write_check",
        ]
    }

    /// Accounts are never closed, so each that is known is there.
    fn audit_survivors(&self, state: &mut dyn Records) -> Vec<String> {
        let mut violations = Violations::default();
        for account in self.accounts() {
            if !state.is_known(account) {
                continue;
            }
            match state.read(account) {
                None => violations.add(|| format!("account {account:?} is lost")),
                Some(value) if parse_balance(&value).is_none() => {
                    violations.add(|| format!("account {account:?} is malformed"));
                }
                Some(_) => {}
            }
        }
        violations.into_lines()
    }

    fn audit(&self, state: &mut dyn Records, totals: &[i128]) -> Vec<String> {
        let mut violations = Violations::default();
        let (mut before, mut after) = (0_i128, 0_i128);
        let (mut expected, mut found) = (0_u64, 0_u64);
        for account in self.accounts() {
            before += i128::from(initial(account));
            expected += 1;
        }
        state.for_each(&mut |account, value| {
            found += 1;
            match parse_balance(value) {
                Some(balance) => after += i128::from(balance),
                None => violations.add(|| format!("account {account:?} is malformed")),
            }
        });
        if found != expected {
            violations.add(|| format!("there are {found} accounts instead of {expected}"));
            for account in self.accounts().filter(|account| state.read(*account).is_none()) {
                violations.add(|| format!("account {account:?} is lost"));
            }
        }
        let change: i128 = totals.iter().sum();
        if before + change != after {
            violations.add(|| {
                format!("money: initially {before}, changed by {change}, finally {after} cents")
            });
        }
        violations.into_lines()
    }
}

/// The balances of the transaction's accounts. `None` unless it has exactly the expected entries
/// (`true`: in the write set), because a transaction may come from a peer.
fn balances<const N: usize>(txn: &Txn, expected: [bool; N]) -> Option<[i32; N]> {
    let entries = txn.entries();
    if entries.len() != N {
        return None;
    }
    let mut balances = [0; N];
    for (index, write) in expected.into_iter().enumerate() {
        if !entries[index].fetched || entries[index].write != write {
            return None;
        }
        balances[index] = parse_balance(txn.value(index)?)?;
    }
    Some(balances)
}

fn amount(txn: &Txn) -> Option<i32> {
    Some(i32::from_le_bytes(txn.args().try_into().ok()?))
}

fn set(txn: &mut Txn, index: usize, balance: i32) {
    txn.put(index, &balance.to_le_bytes());
}

/// Ends a procedure: `None` refuses, otherwise outputs the change of the sum of all balances.
fn finish(txn: &mut Txn, change: Option<i32>) -> Verdict {
    let Some(change) = change else { return Verdict::Refuse };
    txn.output.extend_from_slice(&i64::from(change).to_le_bytes());
    Verdict::Commit
}

/// Moves everything a customer owns to another's checking account.
fn amalgamate(txn: &mut Txn) -> Verdict {
    let moved = |txn: &mut Txn| {
        let [savings, checking, other] = balances(txn, [true; 3])?;
        let other = other.checked_add(savings.checked_add(checking)?)?;
        set(txn, 0, 0);
        set(txn, 1, 0);
        set(txn, 2, other);
        Some(0)
    };
    let change = moved(txn);
    finish(txn, change)
}

/// Reads what a customer owns.
fn balance(txn: &mut Txn) -> Verdict {
    let Some([savings, checking]) = balances(txn, [false; 2]) else { return Verdict::Refuse };
    let owned = i64::from(savings) + i64::from(checking);
    let verdict = finish(txn, Some(0));
    txn.output.extend_from_slice(&owned.to_le_bytes());
    verdict
}

/// Pays an amount in.
fn deposit_checking(txn: &mut Txn) -> Verdict {
    let deposit = |txn: &mut Txn| {
        let ([checking], amount) = (balances(txn, [true])?, amount(txn)?);
        set(txn, 0, checking.checked_add(amount)?);
        Some(amount)
    };
    let change = deposit(txn);
    finish(txn, change)
}

/// Moves an amount between two checking accounts. Refuses if the first has less.
fn send_payment(txn: &mut Txn) -> Verdict {
    let send = |txn: &mut Txn| {
        let ([from, to], amount) = (balances(txn, [true; 2])?, amount(txn)?);
        if from < amount {
            return None;
        }
        let (from, to) = (from.checked_sub(amount)?, to.checked_add(amount)?);
        set(txn, 0, from);
        set(txn, 1, to);
        Some(0)
    };
    let change = send(txn);
    finish(txn, change)
}

/// Adds an amount to savings. Refuses if they would become negative.
fn transact_savings(txn: &mut Txn) -> Verdict {
    let transact = |txn: &mut Txn| {
        let ([savings], amount) = (balances(txn, [true])?, amount(txn)?);
        let savings = savings.checked_add(amount).filter(|savings| *savings >= 0)?;
        set(txn, 0, savings);
        Some(amount)
    };
    let change = transact(txn);
    finish(txn, change)
}

/// Takes an amount off the checking account, with a penalty if the customer owns less in all.
fn write_check(txn: &mut Txn) -> Verdict {
    let write = |txn: &mut Txn| {
        let ([savings, checking], amount) = (balances(txn, [false, true])?, amount(txn)?);
        let covered = i64::from(savings) + i64::from(checking) >= i64::from(amount);
        let taken = if covered { amount } else { amount.checked_add(PENALTY)? };
        set(txn, 1, checking.checked_sub(taken)?);
        taken.checked_neg()
    };
    let change = write(txn);
    finish(txn, change)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicol_core::ids::Version;

    /// Runs one procedure on `balances`; returns the verdict, the balances put, and the output.
    fn run(kind: Kind, amount: i32, found: &[i32]) -> (Verdict, Vec<Option<i32>>, Vec<i64>) {
        let writes: &[bool] = match kind {
            Kind::Amalgamate => &[true, true, true],
            Kind::Balance => &[false, false],
            Kind::DepositChecking | Kind::TransactSavings => &[true],
            Kind::SendPayment => &[true, true],
            Kind::WriteCheck => &[false, true],
        };
        let mut txn = Txn::default();
        txn.reset(ProcedureId(kind as u16), &amount.to_le_bytes());
        for (row, balance) in found.iter().enumerate() {
            let key = account(SAVINGS, row as u64);
            let index = if writes[row] { txn.write(key) } else { txn.read(key) };
            txn.fetched(index, Version(1), Some(&balance.to_le_bytes()));
        }
        let config = SmallbankConfig::paper(1, 10);
        let verdict = Smallbank::new(config).procedures().execute(&mut txn);
        let put = (0..found.len())
            .map(|index| txn.update(index).and_then(|write| parse_balance(write.value?)))
            .collect();
        let output = txn.output.chunks_exact(8);
        let output = output.map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap())).collect();
        (verdict, put, output)
    }

    #[test]
    fn the_six_transactions_do_what_they_say() {
        use Kind::*;
        use Verdict::*;
        let all = |values: &[i32]| values.iter().copied().map(Some).collect::<Vec<_>>();
        assert_eq!(run(Amalgamate, 0, &[3, 4, 5]), (Commit, all(&[0, 0, 12]), vec![0]));
        assert_eq!(run(Balance, 0, &[3, 4]), (Commit, vec![None, None], vec![0, 7]));
        assert_eq!(run(DepositChecking, 130, &[1]), (Commit, all(&[131]), vec![130]));
        assert_eq!(run(SendPayment, 5, &[5, 1]), (Commit, all(&[0, 6]), vec![0]));
        assert_eq!(run(TransactSavings, -5, &[5]), (Commit, all(&[0]), vec![-5]));
        assert_eq!(run(WriteCheck, 5, &[3, 2]), (Commit, vec![None, Some(-3)], vec![-5]));
        assert_eq!(run(WriteCheck, 5, &[2, 2]), (Commit, vec![None, Some(-103)], vec![-105]));
    }

    #[test]
    fn what_cannot_be_paid_or_stored_is_refused() {
        for (kind, amount, found) in [
            (Kind::SendPayment, 6, vec![5, 1]),
            (Kind::SendPayment, 6, vec![6, i32::MAX]),
            (Kind::TransactSavings, -6, vec![5]),
            (Kind::DepositChecking, 1, vec![i32::MAX]),
            (Kind::WriteCheck, 1, vec![0, i32::MIN]),
            (Kind::Amalgamate, 0, vec![i32::MAX, 1, 0]),
            (Kind::Amalgamate, 0, vec![1, 1, i32::MAX]),
        ] {
            let (verdict, _, output) = run(kind, amount, &found);
            assert_eq!((verdict, output), (Verdict::Refuse, vec![]), "{kind:?} {found:?}");
        }
    }

    #[test]
    fn a_peers_nonsense_is_refused() {
        let procedures = Smallbank::new(SmallbankConfig::paper(1, 10)).procedures();
        for procedure in 0..8 {
            let mut txn = Txn::default();
            txn.reset(ProcedureId(procedure), &[1, 2]);
            assert_eq!(procedures.execute(&mut txn), Verdict::Refuse);
            txn.write(account(CHECKING, 1));
            assert_eq!(procedures.execute(&mut txn), Verdict::Refuse, "not fetched");
            txn.fetched(0, Version(1), Some(&[1, 2, 3]));
            assert_eq!(procedures.execute(&mut txn), Verdict::Refuse, "three bytes");
        }
    }
}
