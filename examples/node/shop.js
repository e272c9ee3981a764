// A shop in Node asks for payouts: in its own transaction, and over HTTP.
//
//   ONCEWARD_TOKEN=… node shop.js onceward.db http://127.0.0.1:7117
//
// Node 22.13 and later bring node:sqlite. Before it: npm install @photostructure/sqlite, which is the same for Node 20.
// better-sqlite3 does as well: new Database(file, { timeout: 30000 }), and exec, prepare, run and get are the same.
const { DatabaseSync } = (() => {
  try {
    return require("node:sqlite");
  } catch {
    return require("@photostructure/sqlite");
  }
})();

const [file, url] = process.argv.slice(2);
const atRest = ["settled", "parked", "cancelled"];
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const payload = (invoice, amount) => ({ invoice_id: invoice, account_id: "7", amount_minor: amount, currency: "EUR" });

// 1. In the shop's own transaction: the invoice and its payout are both there, or neither is.
function book(db, invoice, amount) {
  db.prepare("INSERT INTO invoices VALUES (?, ?)").run(invoice, amount);
  const ask = db.prepare("INSERT INTO onceward_inbox (kind, payload) VALUES ('payout', ?)");
  ask.run(JSON.stringify(payload(invoice, amount)));
}

// 3. Over HTTP. Without an answer, or after a 503, nobody knows whether it was taken: ask again with the same key.
async function ask(method, path, body, key) {
  const headers = { Authorization: `Bearer ${process.env.ONCEWARD_TOKEN}` };
  if (body) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  for (let attempt = 1; ; attempt++) {
    const signal = AbortSignal.timeout(30_000);
    try {
      const answer = await fetch(url + path, { method, headers, body: body && JSON.stringify(body), signal });
      if (answer.ok) return await answer.json();
      if (answer.status !== 503) throw Object.assign(new Error(await answer.text()), { final: true });
    } catch (lost) {
      if (lost.final || attempt === 5) throw lost;
    }
    if (attempt === 5) throw new Error("503, five times");
    await pause(200 * attempt);
  }
}

async function main() {
  const db = new DatabaseSync(file);
  db.exec("PRAGMA busy_timeout = 30000");
  db.exec("CREATE TABLE IF NOT EXISTS invoices (id TEXT PRIMARY KEY, amount_minor INTEGER NOT NULL)");
  db.exec("BEGIN IMMEDIATE");
  book(db, "INV-1", 1001);
  db.exec("ROLLBACK"); // something went wrong: no invoice, no payout
  db.exec("BEGIN IMMEDIATE");
  book(db, "INV-2", 1002);
  db.exec("COMMIT");

  // 2. What became of it stands in a view of the same file.
  const outcome = db.prepare("SELECT state, reference FROM onceward_outcomes WHERE key = ?");
  for (;;) {
    const row = outcome.get("payout:INV-2");
    if (row && atRest.includes(row.state)) {
      console.log("payout:INV-2", row.state, row.reference);
      break;
    }
    await pause(50);
  }

  let job = await ask("POST", "/v1/jobs", { kind: "payout", payload: payload("INV-3", 1003) }, "payout:INV-3");
  console.log(job.key, job.outcome); // created; or duplicate, if an earlier request had come through after all
  for (;;) {
    job = await ask("GET", `/v1/jobs/${encodeURIComponent(job.key)}`);
    if (atRest.includes(job.state)) break;
    await pause(50);
  }
  console.log(job.key, job.state, job.intent.reference);
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
