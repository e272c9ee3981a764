//! What is settled per account and currency, summed from two sides (the ledger's rows and the history's words), in memory
//! that does not grow with the number of accounts: beyond a bound the sums go to a passing SQLite file of their own.
//!
//! Sums are i128. The passing file keeps each as two integers, `high * 2^32 + low`, for a sum of SQLite's own would end at
//! 64 bits.

use super::StoreError;
use rusqlite::{Connection, named_params};
use std::collections::BTreeMap;

/// Accounts and currencies that are in memory at once.
const IN_MEMORY: usize = 20_000;

/// Who says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Ledger,
    History,
}

/// Account and currency; either may be missing.
type Name = (Option<String>, Option<String>);

#[derive(Default)]
struct Pair {
    ledger: i128,
    history: i128,
}

/// The sums so far.
#[derive(Default)]
pub struct Totals {
    fresh: BTreeMap<Name, Pair>,
    passing: Option<Connection>,
    /// A bound other than [`IN_MEMORY`], for tests.
    bound: Option<usize>,
}

// A file without a name is SQLite's own temporary one: it is gone with the connection.
const TABLE: &str = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -8000;
  CREATE TABLE sums (account TEXT NOT NULL, currency TEXT NOT NULL, ledger_high INTEGER NOT NULL,
    ledger_low INTEGER NOT NULL, history_high INTEGER NOT NULL, history_low INTEGER NOT NULL,
    PRIMARY KEY (account, currency)) WITHOUT ROWID; BEGIN";
const ADD: &str = "INSERT INTO sums VALUES (:account, :currency, :lh, :ll, :hh, :hl)
  ON CONFLICT (account, currency) DO UPDATE SET ledger_high = ledger_high + excluded.ledger_high,
    ledger_low = ledger_low + excluded.ledger_low, history_high = history_high + excluded.history_high,
    history_low = history_low + excluded.history_low";
const ALL: &str = "SELECT account, currency, ledger_high, ledger_low, history_high, history_low FROM sums
  WHERE ledger_high <> history_high OR ledger_low <> history_low ORDER BY account, currency";

impl Totals {
    /// Adds an amount of a settled intent, in minor units.
    pub fn add(
        &mut self,
        side: Side,
        account: Option<&str>,
        currency: Option<&str>,
        amount_minor: i64,
    ) -> Result<(), StoreError> {
        let pair = self.fresh.entry((account.map(Into::into), currency.map(Into::into))).or_default();
        match side {
            Side::Ledger => pair.ledger += i128::from(amount_minor),
            Side::History => pair.history += i128::from(amount_minor),
        }
        if self.fresh.len() > self.bound.unwrap_or(IN_MEMORY) { self.spill() } else { Ok(()) }
    }

    fn spill(&mut self) -> Result<(), StoreError> {
        let conn = match self.passing.take() {
            Some(conn) => conn,
            None => {
                let conn = Connection::open("")?;
                conn.execute_batch(TABLE)?;
                conn
            }
        };
        {
            let mut add = conn.prepare_cached(ADD)?;
            for ((account, currency), pair) in std::mem::take(&mut self.fresh) {
                let ((lh, ll), (hh, hl)) = (halves(pair.ledger), halves(pair.history));
                add.execute(named_params! {
                    ":account": marked(account), ":currency": marked(currency),
                    ":lh": lh, ":ll": ll, ":hh": hh, ":hl": hl,
                })?;
            }
        }
        self.passing = Some(conn);
        Ok(())
    }

    /// Calls `tell` with account, currency and both sums wherever the two sides differ.
    pub fn differing(
        mut self,
        mut tell: impl FnMut(Option<&str>, Option<&str>, i128, i128),
    ) -> Result<(), StoreError> {
        if self.passing.is_none() {
            for ((account, currency), pair) in &self.fresh {
                if pair.ledger != pair.history {
                    tell(account.as_deref(), currency.as_deref(), pair.ledger, pair.history);
                }
            }
            return Ok(());
        }
        self.spill()?;
        let Some(conn) = self.passing else { return Ok(()) };
        let mut statement = conn.prepare(ALL)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let sum = |i: usize| -> Result<i128, StoreError> {
                Ok((i128::from(row.get::<_, i64>(i)?) << 32) + i128::from(row.get::<_, i64>(i + 1)?))
            };
            let (account, currency): (String, String) = (row.get(0)?, row.get(1)?);
            let (ledger, history) = (sum(2)?, sum(4)?);
            // The same sum may be split in two ways.
            if ledger != history {
                tell(account.strip_prefix('='), currency.strip_prefix('='), ledger, history);
            }
        }
        Ok(())
    }
}

/// A missing name and an empty one are two.
fn marked(name: Option<String>) -> String {
    name.map(|name| format!("={name}")).unwrap_or_default()
}

fn halves(sum: i128) -> (i64, i64) {
    // Sums of 64-bit amounts stay far below 2^95 for any number of rows that a file can hold.
    let high = i64::try_from(sum >> 32).unwrap_or(i64::MAX);
    let low = i64::try_from(sum & 0xffff_ffff).unwrap_or(0);
    (high, low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(totals: Totals) -> Vec<(Option<String>, Option<String>, i128, i128)> {
        let mut told = Vec::new();
        totals
            .differing(|account, currency, ledger, history| {
                told.push((account.map(String::from), currency.map(String::from), ledger, history));
            })
            .unwrap();
        told
    }

    #[test]
    fn sums_are_the_same_in_memory_and_in_the_passing_file_beyond_64_bits_too() {
        for bound in [None, Some(0), Some(3)] {
            let mut totals = Totals { bound, ..Totals::default() };
            for n in 0..40 {
                let account = format!("a{}", n % 7);
                for side in [Side::Ledger, Side::History] {
                    totals.add(side, Some(&account), Some("EUR"), i64::MAX - n).unwrap();
                    totals.add(side, Some(&account), Some("USD"), -n).unwrap();
                }
            }
            totals.add(Side::Ledger, None, None, 5).unwrap();
            totals.add(Side::Ledger, Some(""), Some("EUR"), i64::MIN).unwrap();
            totals.add(Side::Ledger, Some(""), Some("EUR"), i64::MIN).unwrap();
            totals.add(Side::History, Some("a3"), Some("EUR"), 1).unwrap();
            let found = told(totals);
            assert_eq!(found.len(), 3, "{bound:?} {found:?}");
            assert_eq!(found[0], (None, None, 5, 0), "{bound:?}");
            assert_eq!(
                found[1],
                (Some("".into()), Some("EUR".into()), 2 * i128::from(i64::MIN), 0),
                "{bound:?}"
            );
            assert_eq!(found[2].3 - found[2].2, 1, "{bound:?}");
            assert!(found[2].2 > i128::from(i64::MAX), "{bound:?}");
        }
    }
}
