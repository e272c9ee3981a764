#!/usr/bin/env python3
"""What pages, lists and figures cost over a large file: 1,000,000 jobs done, 100,000 parked (a fifth of them in doubt),
100,000 due later and 10,000 in doubt. Prints the median and the longest of five requests, in milliseconds.

    cargo build --release && python3 benches/size.py target/release/onceward [SCALE]

SCALE divides the numbers. The rows are written by SQL, so that their history is not chained."""

import http.client, os, re, signal, sqlite3, statistics, subprocess, sys, tempfile, time

binary, scale = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
DONE, PARKED, LATER, DOUBT = (n // scale for n in (1_000_000, 100_000, 100_000, 10_000))
TOKEN = "token-of-the-size-bench"
dir = tempfile.TemporaryDirectory()
config, db = f"{dir.name}/onceward.toml", f"{dir.name}/onceward.db"
with open(config, "w") as file:
    file.write("""[store]
path = "onceward.db"
[http]
listen = "127.0.0.1:0"
token = { env = "SIZE_TOKEN" }
[providers.bank]
profile = "none"
base_url = "http://127.0.0.1:9"
[kinds.payout]
provider = "bank"
request = { path = "/payouts" }
[kinds.raw]
provider = "bank"
request = { path = "/raw" }
""")
env = dict(os.environ, SIZE_TOKEN=TOKEN)


def run(*args):
    return subprocess.run([binary, "--config", config, *args], env=env, capture_output=True, text=True)


run("enqueue", "payout", "--key", "first", "--payload", "{}", "--delay", "1000d")
run("pause", "provider", "bank")
now = int(time.time() * 1000)
done, parked, later, doubt = (DONE, DONE + PARKED, DONE + PARKED + LATER, DONE + PARKED + LATER + DOUBT)
sqlite = sqlite3.connect(db)
sqlite.executescript(f"""
PRAGMA synchronous = OFF; PRAGMA cache_size = -200000;
BEGIN;
CREATE TEMP TABLE n AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {doubt}) SELECT i FROM n;
INSERT INTO onceward_intents (id, key, kind, content_hash, payload_hash, account, amount_minor, currency, provider, state,
    wire_key, reference, requested_ms, first_sent_ms, confirmed_ms, created_ms)
  SELECT i + 10, 'bulk:' || i, iif(i % 7 = 0, 'raw', 'payout'), zeroblob(32), zeroblob(32), 'a' || (i % 1000), i, 'EUR',
    'bank', CASE WHEN i <= {done} THEN 'settled' WHEN i <= {parked} AND i % 5 = 0 THEN 'requested'
      WHEN i <= {parked} THEN 'rejected' WHEN i <= {later} THEN 'pending' ELSE 'requested' END,
    'w', iif(i <= {done}, 'po_' || i, NULL), {now} - i, {now} - i, iif(i <= {done}, {now} - i, NULL), {now} - i FROM n;
INSERT INTO onceward_jobs (id, kind, payload, state, run_after_ms, max_attempts, error_class, park_reason, group_name,
    sequence, created_ms, updated_ms)
  SELECT i + 10, iif(i % 7 = 0, 'raw', 'payout'), '{{}}', CASE WHEN i <= {done} THEN 'settled' WHEN i <= {parked} THEN 'parked'
      WHEN i <= {later} THEN 'scheduled' ELSE 'unknown' END, {now} + 86400000 + i, 3,
    CASE WHEN i <= {done} THEN NULL WHEN i <= {parked} AND i % 5 = 0 THEN 'timeout' WHEN i <= {parked} THEN 'rejected'
      WHEN i > {later} THEN 'timeout' END,
    CASE WHEN i > {done} AND i <= {parked} THEN iif(i % 5 = 0, 'unknown_outcome', 'rejected') END,
    iif(i % 3 = 0, 'g' || i, NULL), iif(i % 3 = 0, 1, NULL), {now} - i, {now} - i FROM n;
INSERT INTO onceward_history (job_id, action, class, at_ms, actor, content_hash, chain)
  SELECT i + 10, 'request', 'ok', {now} - i, 'worker:x', zeroblob(32), zeroblob(32) FROM n;
INSERT INTO onceward_counters (name, value) VALUES ('jobs:settled', {DONE}), ('jobs:parked', {PARKED}),
  ('jobs:unknown', {DOUBT}), ('parked:rejected', {PARKED * 4 // 5}), ('parked:unknown_outcome', {PARKED // 5})
  ON CONFLICT (name) DO UPDATE SET value = value + excluded.value;
UPDATE onceward_counters SET value = value + {LATER} WHERE name = 'jobs:scheduled';
COMMIT;
""")
sqlite.close()
print(f"{os.path.getsize(db) >> 20} MiB")
log = open(f"{dir.name}/log", "w+")
worker = subprocess.Popen([binary, "--config", config, "work"], env=env, stderr=log)
try:
    address = None
    while not address:
        time.sleep(0.05)
        found = re.search(r"listening on http://(\S+)", open(log.name).read())
        address = found and found[1]

    def ask(method, path, headers, body=None):
        connection = http.client.HTTPConnection(address, timeout=120)
        begun = time.perf_counter()
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
        return answer, text, (time.perf_counter() - begun) * 1000

    bearer = {"Authorization": f"Bearer {TOKEN}"}
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    cookie = {"Cookie": ask("POST", "/login", form, f"token={TOKEN}")[0].getheader("set-cookie").split(";")[0]}
    first_parked, last = DONE + 11, f"bulk:{doubt - 5}"
    api = ["/metrics", "/v1/stats", "/healthz", "/v1/jobs", f"/v1/jobs?after={last}"]
    api += [f"/v1/jobs?state={s}" for s in "settled parked scheduled ready waiting unknown running cancelled".split()]
    api += ["/v1/jobs?kind=raw", "/v1/jobs?kind=raw&state=parked", "/v1/jobs?class=rejected", "/v1/jobs?class=timeout",
            "/v1/jobs?group=g3", "/v1/jobs?class=crashed&state=settled", f"/v1/jobs?state=parked&after=bulk:{done + 50}",
            "/v1/jobs?kind=payout&limit=1000", "/v1/jobs/bulk:7"]
    console = ["/", "/?span=30d", "/doubt", "/parked", "/parked/replay?reason=rejected&which=all", "/jobs",
               "/jobs?state=settled", "/jobs?state=parked", "/jobs?state=scheduled", "/jobs?state=unknown", "/jobs?kind=raw",
               "/jobs?class=rejected", "/jobs?kind=raw&state=unknown", "/jobs?q=bulk%3A5", "/jobs?q=a7&by=account",
               f"/job/{first_parked}", "/providers", "/groups", "/audit", "/audit?of=events", "/audit?actor=nobody"]
    for headers, paths in ((bearer, api), (cookie, console)):
        for path in paths:
            answers = [ask("GET", path, headers) for _ in range(5)]
            times = [round(a[2], 1) for a in answers]
            status, size = answers[0][0].status, len(answers[0][1])
            print(f"{statistics.median(times):8.1f} {max(times):8.1f}  {status} {size:8}  {path}", flush=True)
finally:
    worker.send_signal(signal.SIGTERM)
    worker.wait()
for args in (["list"], ["list", "--state", "unknown"], ["stats"]):
    begun = time.perf_counter()
    run(*args)
    print(f"{(time.perf_counter() - begun) * 1000:8.1f}           onceward {' '.join(args)}")
