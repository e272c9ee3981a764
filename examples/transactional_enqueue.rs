//! An app's own row and the job that follows from it, in one transaction: both are there, or neither is.
//!
//! Run it with `cargo run --example transactional_enqueue`.
#![allow(missing_docs, clippy::print_stdout)]

use onceward::clock::{Clock, SystemClock};
use onceward::config::{Config, Request};
use onceward::store::{Desk, Enqueued, Options, Store, enqueue_in};
use onceward::worker::Trade;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

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

    // Opening the store adds the onceward_ tables. A worker, here or in another process, would work on the same file.
    let config = Arc::new(Config::parse(CONFIG, &dir.join("onceward.toml"))?);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let desk: Arc<dyn Desk> = Arc::new(Trade::new(Arc::clone(&config), Arc::clone(&clock)));
    let options = Options { create: true, namespace: config.store.namespace.clone(), watch: None };
    let store = Store::open(&file, options, Arc::clone(&clock), desk)?;

    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    pay(&tx, &config, clock.as_ref(), "INV-1", 1250)?;
    tx.commit()?;

    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    pay(&tx, &config, clock.as_ref(), "INV-2", 990)?;
    tx.rollback()?;

    let invoices: u32 = db.query_row("SELECT count(*) FROM invoices", [], |row| row.get(0))?;
    let (first, second) = (store.find("payout:INV-1")?, store.find("payout:INV-2")?);
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
    config: &Config,
    clock: &dyn Clock,
    invoice: &str,
    amount_minor: i64,
) -> Result<Enqueued, Box<dyn Error>> {
    tx.execute("INSERT INTO invoices (id, amount_minor) VALUES (?1, ?2)", (invoice, amount_minor))?;
    let payload = format!(r#"{{"invoice_id":"{invoice}","amount_minor":{amount_minor}}}"#);
    let request = Request { kind: "payout".into(), payload, ..Request::default() };
    let job = config.prepare(request, clock.now())?;
    Ok(enqueue_in(tx, &config.store.namespace, clock, &job, "shop")?)
}
