//! An app's own row and the job that follows from it, in one transaction: both are there, or neither is.
//!
//! Run it with `cargo run --example transactional_enqueue`.
#![allow(missing_docs, clippy::print_stdout)]

use onceward::{Builder, Enqueued, Onceward, Request};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::error::Error;
use std::path::Path;

const CONFIG: &str = r#"
[store]
path = "shop.db"

[providers.bank]
profile = "generic"
base_url = "http://127.0.0.1:8080"

[kinds.payout]
provider = "bank"
key = "payout:{invoice_id}"
amount_minor = "{amount_minor}"
currency = "EUR"
request = { method = "POST", path = "/v1/payouts", encoding = "json" }
reply = { reference = "/id" }
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("onceward-example-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let run = shop(&dir);
    std::fs::remove_dir_all(&dir)?;
    run
}

fn shop(dir: &Path) -> Result<(), Box<dyn Error>> {
    let file = dir.join("shop.db");
    // The app's own file, with the app's own table.
    let mut db = Connection::open(&file)?;
    db.execute_batch("CREATE TABLE invoices (id TEXT PRIMARY KEY, amount_minor INTEGER NOT NULL)")?;

    // Opening adds the onceward_ tables. A worker, here (`start`) or in another process, would work on the same file.
    let onceward = Builder::from_text(CONFIG, &dir.join("onceward.toml"))?.open()?;

    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    pay(&tx, &onceward, "INV-1", 1250)?;
    tx.commit()?;

    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    pay(&tx, &onceward, "INV-2", 990)?;
    tx.rollback()?;

    let invoices: u32 = db.query_row("SELECT count(*) FROM invoices", [], |row| row.get(0))?;
    let (first, second) = (onceward.standing("payout:INV-1")?, onceward.standing("payout:INV-2")?);
    println!(
        "{invoices} invoice; the first one's job is {first:?}, the one that was taken back has {second:?}"
    );
    if invoices != 1 || first.is_none() || second.is_some() {
        return Err("an invoice and its job must stand or fall together".into());
    }
    Ok(())
}

/// Books an invoice and asks for its payout.
fn pay(
    tx: &Transaction<'_>,
    onceward: &Onceward,
    invoice: &str,
    amount_minor: i64,
) -> Result<Enqueued, Box<dyn Error>> {
    tx.execute("INSERT INTO invoices (id, amount_minor) VALUES (?1, ?2)", (invoice, amount_minor))?;
    let payload = format!(r#"{{"invoice_id":"{invoice}","amount_minor":{amount_minor}}}"#);
    Ok(onceward.enqueue_in(tx, Request { kind: "payout".into(), payload, ..Request::default() })?)
}
