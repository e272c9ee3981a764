-- The whole schema of a Onceward file. The tables may stand in an app's own SQLite file: every name begins with
-- onceward_, and user_version and application_id stay the app's.
--
-- The record: onceward_intents, onceward_history and onceward_events. All else is work in progress or could be rebuilt from them.
-- Conditions of tables and indexes that each write must judge have no IN with more than two values: SQLite would build a
-- small tree for the list at each write.
-- Times are UTC milliseconds (columns end in _ms), money is integer minor units with an ISO 4217 code.

-- Facts about the file itself: schema version, instance, namespace, the highest time seen, how far wall clock and boot
-- clock are apart in which boot (clock), the last tick dealt with of
-- each schedule (schedule:NAME), and ticks passed over that no job has told of yet (schedule_passed:NAME).
CREATE TABLE onceward_meta (
  name  TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The ledger: one row per business operation, for ever. A job's number is its intent's.
CREATE TABLE onceward_intents (
  id                  INTEGER PRIMARY KEY AUTOINCREMENT,
  key                 TEXT NOT NULL UNIQUE CHECK (length(CAST(key AS BLOB)) BETWEEN 1 AND 255),
  kind                TEXT NOT NULL,
  -- SHA-256 of the canonical content; earlier ones (before an amendment) follow one another in earlier_hashes.
  content_hash        BLOB NOT NULL CHECK (length(content_hash) = 32),
  earlier_hashes      BLOB NOT NULL DEFAULT x'' CHECK (length(earlier_hashes) % 32 = 0),
  payload_hash        BLOB NOT NULL CHECK (length(payload_hash) = 32),
  account             TEXT,
  amount_minor        INTEGER,
  currency            TEXT CHECK (length(currency) = 3),
  provider            TEXT,
  state               TEXT NOT NULL CHECK (state = 'pending' OR state = 'requested' OR state = 'settled' OR state = 'rejected' OR
                     state = 'cancelled'),
  generation          INTEGER NOT NULL DEFAULT 1 CHECK (generation >= 1),
  wire_key            TEXT NOT NULL,
  -- An earlier generation was given up on a look-up's or a person's word, not on the provider's refusal.
  earlier_unknown     INTEGER NOT NULL DEFAULT 0 CHECK (earlier_unknown IN (0,1)),
  -- The present generation's request as it was first sent, and where.
  frozen_method       TEXT,
  frozen_path         TEXT,
  frozen_headers      TEXT,
  frozen_body         BLOB,
  frozen_lookup       TEXT,
  scope_send          TEXT,
  scope_lookup        TEXT,
  -- What is known about the present generation.
  sends               INTEGER NOT NULL DEFAULT 0,
  first_sent_ms       INTEGER,
  first_sent_boot_ms  INTEGER,
  last_sent_ms        INTEGER,
  unknown             INTEGER NOT NULL DEFAULT 0 CHECK (unknown IN (0,1)),
  accepted            INTEGER NOT NULL DEFAULT 0 CHECK (accepted IN (0,1)),
  server_errors       INTEGER NOT NULL DEFAULT 0,
  no_resend           INTEGER NOT NULL DEFAULT 0 CHECK (no_resend IN (0,1)),
  not_found           INTEGER NOT NULL DEFAULT 0,
  not_found_ms        INTEGER,
  lookups             INTEGER NOT NULL DEFAULT 0,
  named               TEXT,
  -- The provider's own id of the effect, the generation that brought it, and whether others may share it.
  reference           TEXT,
  reference_generation INTEGER,
  reference_shared    INTEGER NOT NULL DEFAULT 0 CHECK (reference_shared IN (0,1)),
  requested_ms        INTEGER,
  confirmed_ms        INTEGER,
  result              TEXT,
  created_ms          INTEGER NOT NULL,
  -- The boot clock when the last send, and the last look-up that found nothing, were written down.
  last_sent_boot_ms   INTEGER,
  not_found_boot_ms   INTEGER,
  -- In doubt since the file was restored: the time of the earliest copy that concerns it, and the first of the restores
  -- that do (all later ones do too). Only settling or a person's word about all generations ends this doubt.
  doubt_since_ms      INTEGER,
  doubt_restore       INTEGER,
  -- A look-up by key has proved since then that nothing happened: the present generation may go out.
  proved              INTEGER NOT NULL DEFAULT 0 CHECK (proved IN (0,1)),
  -- The refusal answered the request itself, and the provider does not store it: the same key may go again.
  refused_directly    INTEGER NOT NULL DEFAULT 0 CHECK (refused_directly IN (0,1)),
  -- The app makes the call itself, and is to be told `again` when it next asks: since then.
  waits_for_app_ms    INTEGER,
  -- 2xx answers of the present generation that did not say what they should.
  bad_responses       INTEGER NOT NULL DEFAULT 0,
  CHECK ((state = 'settled') = (confirmed_ms IS NOT NULL)),
  CHECK (reference IS NULL OR state = 'settled'),
  CHECK (frozen_method IS NULL OR (frozen_path IS NOT NULL AND scope_send IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX onceward_intents_reference ON onceward_intents (provider, kind, reference)
  WHERE reference IS NOT NULL AND reference_shared = 0;
-- What people search by. Kinds here and not at the jobs, where SQLite would take it for the claim's own statements.
CREATE INDEX onceward_intents_by_reference ON onceward_intents (reference) WHERE reference IS NOT NULL;
CREATE INDEX onceward_intents_by_kind ON onceward_intents (kind, id);
-- What is in doubt since a restore.
CREATE INDEX onceward_intents_in_doubt ON onceward_intents (doubt_restore, id)
  WHERE doubt_since_ms IS NOT NULL AND state <> 'settled';
CREATE INDEX onceward_intents_by_account ON onceward_intents (account, id) WHERE account IS NOT NULL;

-- Generations that are over, or whose object was named: their keys as the provider saw them, and the provider's id of what
-- became of each. Every key ever made is matched by a statement; an earlier generation's object is no answer about a later one.
CREATE TABLE onceward_generations (
  intent_id  INTEGER NOT NULL REFERENCES onceward_intents (id),
  generation INTEGER NOT NULL CHECK (generation >= 1),
  wire_key   TEXT NOT NULL,
  reference  TEXT,
  PRIMARY KEY (intent_id, generation)
) STRICT, WITHOUT ROWID;
CREATE INDEX onceward_generations_wire_key ON onceward_generations (wire_key);

-- Each time the file was put back from a copy. What the lost file did between the two times nobody will tell this one.
CREATE TABLE onceward_restores (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  copied_ms   INTEGER NOT NULL,
  restored_ms INTEGER NOT NULL,
  restored_by TEXT NOT NULL,
  -- Keys that are new to the file have numbers above this.
  after_id    INTEGER NOT NULL,
  -- The last row of history that the copy had.
  copy_seq    INTEGER NOT NULL,
  -- A person's word: since the copy nobody amended, cancelled, rejected or called anything not applied.
  no_words_ms INTEGER,
  no_words_by TEXT,
  -- A person's word: every app has asked again for what it had asked for, so keys new to the file are new.
  closed_ms   INTEGER,
  closed_by   TEXT,
  CHECK ((no_words_ms IS NULL) = (no_words_by IS NULL)),
  CHECK ((closed_ms IS NULL) = (closed_by IS NULL))
) STRICT;

-- The work: one row per intent until it is pruned.
CREATE TABLE onceward_jobs (
  id               INTEGER PRIMARY KEY REFERENCES onceward_intents (id),
  kind             TEXT NOT NULL,
  -- As it was given, byte for byte.
  payload          TEXT NOT NULL,
  state            TEXT NOT NULL CHECK (state = 'scheduled' OR state = 'ready' OR state = 'waiting' OR state = 'running' OR
                     state = 'unknown' OR state = 'settled' OR state = 'parked' OR state = 'cancelled'),
  -- Due and free to go: only such rows are in the claim's index.
  claimable        INTEGER NOT NULL DEFAULT 0 CHECK (claimable IN (0,1)),
  priority         INTEGER NOT NULL DEFAULT 0,
  run_after_ms     INTEGER NOT NULL,
  -- An app asked for this time: it stays when the clock is set back.
  due_by_app       INTEGER NOT NULL DEFAULT 0 CHECK (due_by_app IN (0,1)),
  attempts         INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  max_attempts     INTEGER NOT NULL CHECK (max_attempts >= 1),
  tries            INTEGER NOT NULL DEFAULT 0 CHECK (tries >= attempts),
  pauses           INTEGER NOT NULL DEFAULT 0,
  age_from_ms      INTEGER,
  lease_owner      TEXT REFERENCES onceward_owners (nonce),
  lease_token      INTEGER NOT NULL DEFAULT 0,
  lease_expires_ms INTEGER,
  lease_started_ms INTEGER,
  lease_step       TEXT CHECK (lease_step = 'send' OR lease_step = 'lookup' OR lease_step = 'fetch'),
  lease_phase      TEXT CHECK (lease_phase IN ('claimed','sending')),
  group_name       TEXT,
  sequence         INTEGER CHECK (sequence >= 1),
  -- It is out of `waiting` and its group is paused: it is neither claimed nor promoted. Set where a job is set free.
  group_paused     INTEGER NOT NULL DEFAULT 0 CHECK (group_paused IN (0,1)),
  -- Parked, and its group goes on without it.
  passed_over      INTEGER NOT NULL DEFAULT 0 CHECK (passed_over IN (0,1)),
  error_class      TEXT,
  last_error       TEXT,
  park_reason      TEXT,
  dedup            TEXT,
  dedup_until_ms   INTEGER,
  created_ms       INTEGER NOT NULL,
  updated_ms       INTEGER NOT NULL,
  -- The boot clock at the claim: the provider's window runs from there, whatever the wall clock was set to meanwhile.
  lease_boot_ms    INTEGER,
  -- The program that does the work, as JSON: its process and its time. Whoever comes after a dead worker waits for it.
  lease_process    TEXT,
  CHECK ((state = 'running') = (lease_owner IS NOT NULL)),
  CHECK ((lease_owner IS NULL) = (lease_expires_ms IS NULL)),
  CHECK ((lease_owner IS NULL) = (lease_started_ms IS NULL)),
  CHECK ((lease_owner IS NULL) = (lease_step IS NULL)),
  CHECK ((lease_owner IS NULL) = (lease_phase IS NULL)),
  CHECK ((state = 'parked') = (park_reason IS NOT NULL)),
  CHECK (claimable = 0 OR state IN ('ready','unknown')),
  CHECK ((group_name IS NULL) = (sequence IS NULL)),
  CHECK (state <> 'waiting' OR group_name IS NOT NULL),
  CHECK (passed_over = 0 OR state = 'parked'),
  CHECK ((dedup IS NULL) = (dedup_until_ms IS NULL))
) STRICT;
-- The claim walks this from its head, a kind at a time; finished, parked, paused and future rows are not in it.
CREATE INDEX onceward_jobs_claim ON onceward_jobs (kind, priority DESC, run_after_ms, id)
  WHERE claimable = 1 AND group_paused = 0;
-- What will be due: promotion takes from its head.
CREATE INDEX onceward_jobs_due ON onceward_jobs (run_after_ms)
  WHERE claimable = 0 AND group_paused = 0 AND state IN ('scheduled','unknown');
CREATE INDEX onceward_jobs_running ON onceward_jobs (lease_owner, kind) WHERE state = 'running';
CREATE INDEX onceward_jobs_parked ON onceward_jobs (park_reason, id) WHERE state = 'parked';
CREATE INDEX onceward_jobs_open ON onceward_jobs (state, run_after_ms)
  WHERE state <> 'running' AND state <> 'settled' AND state <> 'parked' AND state <> 'cancelled';
-- Lists, newest first. The states that are missing here have an index of their own above, or are most of the file.
CREATE INDEX onceward_jobs_by_class ON onceward_jobs (error_class, id) WHERE error_class IS NOT NULL;
CREATE INDEX onceward_jobs_cancelled ON onceward_jobs (id) WHERE state = 'cancelled';
CREATE INDEX onceward_jobs_dedup ON onceward_jobs (kind, dedup, dedup_until_ms) WHERE dedup IS NOT NULL;
CREATE UNIQUE INDEX onceward_jobs_place ON onceward_jobs (group_name, sequence)
  WHERE group_name IS NOT NULL AND state <> 'cancelled';
-- Order: who of a group is out, who is next, and which places were given up.
CREATE INDEX onceward_jobs_out ON onceward_jobs (group_name)
  WHERE group_name IS NOT NULL AND state <> 'waiting' AND state <> 'settled' AND state <> 'parked' AND state <> 'cancelled';
CREATE INDEX onceward_jobs_queue ON onceward_jobs (group_name, sequence)
  WHERE group_name IS NOT NULL AND state IN ('waiting','parked') AND passed_over = 0;
CREATE INDEX onceward_jobs_given_up ON onceward_jobs (group_name, sequence)
  WHERE group_name IS NOT NULL AND state = 'cancelled';

-- Every decision, appended and chained: content_hash is of error and detail, chain = SHA-256(previous chain, all the rest).
CREATE TABLE onceward_history (
  seq          INTEGER PRIMARY KEY AUTOINCREMENT,
  job_id       INTEGER NOT NULL REFERENCES onceward_intents (id),
  action       TEXT NOT NULL CHECK (action = 'enqueue' OR action = 'request' OR action = 'lookup' OR action = 'crash' OR
                     action = 'park' OR action = 'replay' OR action = 'resolve' OR action = 'cancel' OR
                     action = 'confirm' OR action = 'late_result' OR action = 'note' OR action = 'release'),
  attempt      INTEGER,
  from_state   TEXT,
  to_state     TEXT,
  class        TEXT,
  phase        TEXT,
  http_status  INTEGER,
  error        TEXT,
  detail       TEXT,
  run_after_ms INTEGER,
  started_ms   INTEGER,
  at_ms        INTEGER NOT NULL,
  actor        TEXT NOT NULL,
  content_hash BLOB NOT NULL CHECK (length(content_hash) = 32),
  chain        BLOB NOT NULL CHECK (length(chain) = 32),
  -- What the ledger says of the intent from this row on (JSON), where it can't be told from the other columns. Never pruned.
  record       TEXT
) STRICT;
CREATE INDEX onceward_history_job ON onceward_history (job_id, seq);
CREATE INDEX onceward_history_at ON onceward_history (at_ms, seq);
CREATE UNIQUE INDEX onceward_history_attempt ON onceward_history (job_id, attempt) WHERE attempt IS NOT NULL;

-- The workers that are or were. A worker is alive as long as it holds the OS lock on its file beside the store.
CREATE TABLE onceward_owners (
  nonce    TEXT NOT NULL PRIMARY KEY,
  name     TEXT NOT NULL,
  since_ms INTEGER NOT NULL,
  seen_ms  INTEGER NOT NULL,
  gone_ms  INTEGER,
  -- The kinds that it can do: a JSON array.
  kinds    TEXT
) STRICT, WITHOUT ROWID;

-- Order inside a group: the last place that is done, for groups numbered by arrival the last place given, and since
-- when jobs wait for a place that is missing.
CREATE TABLE onceward_groups (
  name      TEXT NOT NULL PRIMARY KEY,
  numbering TEXT NOT NULL CHECK (numbering IN ('app','arrival')),
  passed    INTEGER NOT NULL DEFAULT 0,
  given     INTEGER NOT NULL DEFAULT 0,
  gap_ms    INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX onceward_groups_gap ON onceward_groups (gap_ms) WHERE gap_ms IS NOT NULL;

-- Places that a person gave up: the group passes them when it gets there, unless a job has taken them meanwhile.
CREATE TABLE onceward_skips (
  group_name TEXT NOT NULL,
  sequence   INTEGER NOT NULL CHECK (sequence >= 1),
  PRIMARY KEY (group_name, sequence)
) STRICT, WITHOUT ROWID;

-- What happened that belongs to no single job: who paused, resumed or skipped what, which worker came and went, what was
-- done to the file itself, and who was turned away. Appended and chained as the history is, in a chain of its own. Part
-- of the record.
CREATE TABLE onceward_events (
  seq          INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms        INTEGER NOT NULL,
  actor        TEXT NOT NULL,
  -- Where from: host and process, a network address, a terminal. Not known of what version 1 wrote.
  origin       TEXT,
  action       TEXT NOT NULL CHECK (action IN ('pause','resume','skip','refuse','start','stop','denied','migrate',
                                               'backup','restore','prune','clock','config','login',
                                               'audit')),
  scope        TEXT NOT NULL CHECK (scope IN ('provider','kind','group','worker','store','door')),
  name         TEXT NOT NULL,
  -- The place that was given up, or that a job was refused.
  sequence     INTEGER,
  why          TEXT,
  -- What else there is to say: by how much, from which version to which, a fingerprint. Never a secret.
  detail       TEXT,
  content_hash BLOB NOT NULL CHECK (length(content_hash) = 32),
  chain        BLOB NOT NULL CHECK (length(chain) = 32),
  CHECK (sequence IS NULL OR action IN ('skip','refuse')),
  CHECK (action <> 'skip' OR sequence IS NOT NULL)
) STRICT;

-- What is kept back: providers by breaker or credential, and whatever a person paused. Survives a restart.
CREATE TABLE onceward_holds (
  scope     TEXT NOT NULL CHECK (scope IN ('provider','kind','group')),
  name      TEXT NOT NULL,
  failures  INTEGER NOT NULL DEFAULT 0,
  -- Held until then, unless a person paused it; probe_job is the one job that is let through.
  held_ms   INTEGER,
  until_ms  INTEGER,
  why       TEXT,
  probe_job INTEGER,
  paused_ms INTEGER,
  paused_by TEXT,
  paused_why TEXT,
  tokens    REAL,
  tokens_ms INTEGER,
  -- When until_ms was set, so that it moves with a clock that was ahead then.
  until_set_ms INTEGER,
  PRIMARY KEY (scope, name),
  CHECK ((held_ms IS NULL) = (until_ms IS NULL)),
  CHECK ((held_ms IS NULL) = (why IS NULL)),
  CHECK (probe_job IS NULL OR held_ms IS NOT NULL),
  CHECK ((paused_ms IS NULL) = (paused_by IS NULL)),
  CHECK (paused_why IS NULL OR paused_ms IS NOT NULL)
) STRICT, WITHOUT ROWID;

-- Figures that would cost a scan: jobs by state, attempts by class, duplicates and the like.
CREATE TABLE onceward_counters (
  name  TEXT NOT NULL PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The same by the hour, for charts: attempts by class, confirmation gaps and waits by bucket. Kept for some weeks.
CREATE TABLE onceward_hours (
  hour_ms INTEGER NOT NULL,
  name    TEXT NOT NULL,
  value   INTEGER NOT NULL,
  PRIMARY KEY (hour_ms, name)
) STRICT, WITHOUT ROWID;

-- The SQL door: an app inserts here inside its own transaction, a worker takes the rows.
CREATE TABLE onceward_inbox (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  kind            TEXT NOT NULL,
  payload         TEXT NOT NULL,
  key             TEXT,
  group_key       TEXT,
  sequence        INTEGER,
  run_after_ms    INTEGER,
  priority        INTEGER,
  account         TEXT,
  amount_minor    INTEGER,
  currency        TEXT,
  dedup           TEXT,
  dedup_window_ms INTEGER,
  refused         TEXT,
  refused_why     TEXT
) STRICT;
CREATE INDEX onceward_inbox_new ON onceward_inbox (id) WHERE refused IS NULL;
CREATE INDEX onceward_inbox_refused ON onceward_inbox (id) WHERE refused IS NOT NULL;

-- For apps that read results with SQL. Its columns are stable.
CREATE VIEW onceward_outcomes (key, kind, state, intent_state, reference, park_reason, confirmed_at_ms) AS
  SELECT i.key, i.kind, coalesce(j.state, i.state), i.state, i.reference, j.park_reason, i.confirmed_ms
  FROM onceward_intents i LEFT JOIN onceward_jobs j ON j.id = i.id;

-- A settled intent never changes, and no intent is ever deleted.
CREATE TRIGGER onceward_settled_never_changes BEFORE UPDATE ON onceward_intents
WHEN old.state = 'settled' AND (new.state <> 'settled' OR new.key <> old.key OR new.kind <> old.kind
  OR new.content_hash <> old.content_hash OR new.generation <> old.generation OR new.wire_key <> old.wire_key
  OR new.reference IS NOT old.reference OR new.account IS NOT old.account OR new.provider IS NOT old.provider
  OR new.amount_minor IS NOT old.amount_minor OR new.currency IS NOT old.currency
  OR new.confirmed_ms IS NOT old.confirmed_ms)
BEGIN SELECT raise(ABORT, 'a settled intent never changes'); END;
CREATE TRIGGER onceward_intents_stay BEFORE DELETE ON onceward_intents
BEGIN SELECT raise(ABORT, 'an intent is never deleted'); END;
CREATE TRIGGER onceward_settled_jobs_stay BEFORE UPDATE OF state ON onceward_jobs
WHEN old.state = 'settled' AND new.state <> 'settled'
BEGIN SELECT raise(ABORT, 'a settled job never changes'); END;

-- History is append-only; pruning may null the words of old rows, and nothing else.
CREATE TRIGGER onceward_history_append_only BEFORE UPDATE ON onceward_history
WHEN new.seq <> old.seq OR new.job_id <> old.job_id OR new.action <> old.action OR new.attempt IS NOT old.attempt
  OR new.from_state IS NOT old.from_state OR new.to_state IS NOT old.to_state OR new.class IS NOT old.class
  OR new.phase IS NOT old.phase OR new.http_status IS NOT old.http_status
  OR new.run_after_ms IS NOT old.run_after_ms OR new.started_ms IS NOT old.started_ms OR new.at_ms <> old.at_ms
  OR new.actor <> old.actor OR new.record IS NOT old.record
  OR new.content_hash <> old.content_hash OR new.chain <> old.chain
  OR (new.error IS NOT NULL AND new.error IS NOT old.error)
  OR (new.detail IS NOT NULL AND new.detail IS NOT old.detail)
BEGIN SELECT raise(ABORT, 'history is append-only'); END;
CREATE TRIGGER onceward_history_stays BEFORE DELETE ON onceward_history
BEGIN SELECT raise(ABORT, 'history is append-only'); END;

-- Events are append-only too.
CREATE TRIGGER onceward_events_append_only BEFORE UPDATE ON onceward_events
BEGIN SELECT raise(ABORT, 'events are append-only'); END;
CREATE TRIGGER onceward_events_stay BEFORE DELETE ON onceward_events
BEGIN SELECT raise(ABORT, 'events are append-only'); END;
