// The scene of the browser tests: a provider with faults, a worker with the console, and jobs in every state.

import { spawn, spawnSync } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const TOKEN = "console-token-of-the-tests-0123456789";
const BINARY = process.env.ONCEWARD_BIN ?? new URL("../../target/debug/onceward", import.meta.url).pathname;
const LIMIT_MS = 60_000;

// What must never run, put wherever a text of somebody else can stand.
export const CORPUS = [
  "<script>window.hacked=1</script>",
  "<img src=x onerror=window.hacked=1>",
  "\"><svg onload=window.hacked=1>",
  "'><a href=javascript:window.hacked=1>x</a>",
  "</pre></code></details><iframe srcdoc='<script>parent.hacked=1</script>'></iframe>",
  "{{7*7}}${7*7}<!--",
  "&lt;script&gt;window.hacked=1&lt;/script&gt;",
];

// Answers by what the reference begins with: settles, refuses, breaks off, or has no final word.
export async function provider() {
  const state = { posts: 0, effects: new Map(), refuses: true };
  const server = http.createServer((request, response) => {
    let text = "";
    request.on("data", (chunk) => (text += chunk));
    request.on("end", () => {
      const say = (status, body, fields = {}) => {
        response.writeHead(status, { "content-type": "application/json", ...fields });
        response.end(JSON.stringify(body));
      };
      if (request.method === "GET") {
        const wanted = new URL(request.url, "http://x").searchParams.get("reference");
        const id = state.effects.get(wanted);
        return say(200, { data: id ? [{ id, status: "paid" }] : [{ id: "po_pending", status: "processing" }] });
      }
      state.posts += 1;
      let ask = {};
      try { ask = JSON.parse(text); } catch { /* an empty body */ }
      const reference = String(ask.reference ?? "");
      if (request.url.startsWith("/locked")) return say(401, { error: "bad credential" });
      if (/:(LOST|GONE)/.test(reference)) return request.socket.destroy();
      if (/:LATE/.test(reference)) return say(202, { id: "po_pending", status: "processing" });
      if (/:BAD/.test(reference) && state.refuses) {
        return say(422, { error: CORPUS[0] + " account closed", card: "4242 4242 4242 4242", token: "s3cr3t", note: CORPUS });
      }
      const id = "po_" + (1000 + state.posts);
      state.effects.set(reference, id);
      say(200, { id, amount: ask.amount, currency: ask.currency, status: "paid" });
    });
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  return { state, url: `http://127.0.0.1:${server.address().port}`, stop: () => server.close() };
}

function config(url) {
  const request = (more = "") =>
    `request = { method = "POST", path = "/v1/payouts", encoding = "json", body = { amount = "{amount_minor}", currency = "{currency}", reference = "{$key}"${more} } }`;
  const reply = `reply = { reference = "/id", amount = "/amount", currency = "/currency", status = "/status", settled = ["paid"], pending = ["processing"] }`;
  const payout = `key = "payout:{invoice_id}"\naccount = "{account_id}"\namount_minor = "{amount_minor}"\ncurrency = "{currency}"`;
  return `
[http]
listen = "127.0.0.1:0"
token = { env = "API_TOKEN" }
[store]
path = "onceward.db"
[worker]
threads = 4
poll = "20ms"
[providers.bank]
profile = "generic"
base_url = "${url}"
rate = "500/s"
[providers.till-bank]
profile = "none"
base_url = "${url}"
[providers.mail]
profile = "generic"
base_url = "${url}/locked"
breaker = { failures = 5, cool_down = "10m" }
auth = { bearer = { env = "MAIL_TOKEN" } }
[kinds.payout]
provider = "bank"
${payout}
${request()}
${reply}
lookup = { path = "/v1/payouts?reference={$key}", reference = "/data/0/id", status = "/data/0/status", settled = ["paid"], pending = ["processing"], lag = "0s" }
retry = { base = "50ms", cap = "5m", max_age = "72h" }
[kinds.cash]
provider = "till-bank"
key = "cash:{invoice_id}"
account = "{account_id}"
amount_minor = "{amount_minor}"
currency = "{currency}"
${request()}
${reply}
[kinds.rent]
provider = "till-bank"
key = "rent:{invoice_id}"
group = "account:{account_id}"
amount_minor = "{amount_minor}"
currency = "{currency}"
${request()}
${reply}
[providers.till]
profile = "external"
[kinds.charge]
provider = "till"
key = "charge:{invoice_id}"
confirm_within = "24h"
[kinds.print]
key = "print:{invoice_id}"
exec = ["/bin/true"]
[kinds.letter]
provider = "mail"
key = "letter:{invoice_id}"
request = { method = "POST", path = "/send", encoding = "json" }
`;
}

export class Scene {
  static async start() {
    const scene = new Scene();
    scene.dir = mkdtempSync(join(tmpdir(), "onceward-browser-"));
    scene.provider = await provider();
    writeFileSync(join(scene.dir, "onceward.toml"), config(scene.provider.url));
    await scene.work();
    return scene;
  }

  env() {
    return { PATH: process.env.PATH, API_TOKEN: TOKEN, MAIL_TOKEN: "mail-token", USER: "ada" };
  }

  async work() {
    const path = join(this.dir, "worker.log");
    const log = openSync(path, "w");
    this.worker = spawn(BINARY, ["work"], { cwd: this.dir, env: this.env(), stdio: ["ignore", "ignore", log] });
    closeSync(log);
    const told = /listening on http:\/\/(\S+)/;
    this.base = await until(() => {
      const found = told.exec(readFileSync(path, "utf8"));
      return found && `http://${found[1]}`;
    }, "the worker listens");
  }

  cli(...args) {
    const run = spawnSync(BINARY, ["--json", ...args], { cwd: this.dir, env: this.env(), encoding: "utf8" });
    if (run.status !== 0) throw new Error(`onceward ${args.join(" ")}: ${run.status} ${run.stdout} ${run.stderr}`);
    return run.stdout.trim() ? JSON.parse(run.stdout.trim().split("\n").at(-1)) : null;
  }

  ask(kind, invoice, amount, currency = "EUR", account = "42", more = {}, ...args) {
    const payload = { invoice_id: invoice, account_id: account, amount_minor: amount, currency, ...more };
    return this.cli("enqueue", kind, "--payload", JSON.stringify(payload), ...args);
  }

  async settled(key, state) {
    return until(() => {
      const job = this.cli("show", key);
      return state.split("|").includes(job.state) && job;
    }, `${key} is ${state}`);
  }

  // Some of everything.
  async fill() {
    for (let n = 1; n <= 24; n += 1) this.ask("payout", `INV-${1000 + n}`, 1250 * n + 7, n % 6 === 0 ? "JPY" : "EUR", String(40 + (n % 5)));
    this.ask("payout", "BAD-7", 49900, "EUR", "43", { memo: CORPUS[1], api_key: "s3cr3t-in-a-payload" });
    this.ask("payout", "BAD-8", 1500, "EUR", "44");
    this.ask("cash", "LOST-1", 125000, "EUR", "41");
    this.ask("cash", "LOST-2", 8990, "EUR", "45");
    this.ask("payout", "LATE-1", 230000, "KWD", "46");
    this.ask("rent", "GONE-1", 75000, "EUR", "9");
    for (let n = 2; n <= 4; n += 1) this.ask("rent", `R-${n}`, 75000, "EUR", "9");
    this.cli("enqueue", "letter", "--payload", '{"invoice_id":"L-1"}');
    this.ask("payout", "SOON-1", 990, "EUR", "47", {}, "--delay", "6h");
    CORPUS.forEach((text, n) => {
      this.cli("enqueue", "payout", "--account", text, "--payload",
        JSON.stringify({ invoice_id: `BAD ${n} ${text}`, account_id: text, amount_minor: 100 + n, currency: "EUR", memo: text }));
    });
    this.cli("enqueue", "charge", "--payload", '{"invoice_id":"C-1"}');
    await this.settled("payout:INV-1024", "settled");
    await this.settled("payout:BAD-7", "parked");
    await this.settled("cash:LOST-1", "parked");
    await this.settled("rent:GONE-1", "parked");
    await this.settled("payout:LATE-1", "unknown");
  }

  // The file is lost, and a copy put back in its place.
  async restore() {
    await this.rest();
    const copy = `copy-${Date.now()}.db`;
    this.cli("backup", copy);
    for (const end of ["", "-wal", "-shm"]) rmSync(join(this.dir, `onceward.db${end}`), { force: true });
    this.cli("restore", copy);
    await this.work();
  }

  async rest() {
    this.worker.kill("SIGTERM");
    await new Promise((gone) => (this.worker.exitCode === null ? this.worker.once("exit", gone) : gone()));
  }

  async stop() {
    await this.rest();
    this.provider.stop();
    rmSync(this.dir, { recursive: true, force: true });
  }
}

export async function until(condition, what) {
  const end = Date.now() + LIMIT_MS;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > end) throw new Error(`never came: ${what}`);
    await new Promise((again) => setTimeout(again, 20));
  }
}
