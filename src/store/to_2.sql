-- Version 1 to 2: onceward_events gets an origin, a detail, further actions and scopes, and a chain; groups say since when
-- a place is missing; the history says what the ledger says; a restored file's intents are asked about first. Rust fills
-- the chain from the old rows, which stand in onceward_step until then. As released: never to be edited.
CREATE TABLE onceward_step AS SELECT seq, at_ms, actor, action, scope, name, sequence, why FROM onceward_events;
-- Dropped and made anew under its own name: a rename would rewrite what an app's own views say of it.
DROP TABLE onceward_events;
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

CREATE TRIGGER onceward_events_append_only BEFORE UPDATE ON onceward_events
BEGIN SELECT raise(ABORT, 'events are append-only'); END;
CREATE TRIGGER onceward_events_stay BEFORE DELETE ON onceward_events
BEGIN SELECT raise(ABORT, 'events are append-only'); END;

ALTER TABLE onceward_groups ADD COLUMN gap_ms INTEGER;
CREATE INDEX onceward_groups_gap ON onceward_groups (gap_ms) WHERE gap_ms IS NOT NULL;
-- A place is missing where jobs wait, nobody is out, and the lowest that is not done waits beyond the next place. Since
-- when was not kept: it counts from the arrival of the first that waits.
UPDATE onceward_groups SET gap_ms = (
    SELECT j.created_ms FROM onceward_jobs j
    WHERE j.group_name = name AND j.state IN ('waiting','parked') AND j.passed_over = 0 ORDER BY j.sequence LIMIT 1)
  WHERE NOT EXISTS (SELECT 1 FROM onceward_jobs j
      WHERE j.group_name = name AND j.state <> 'waiting' AND j.state <> 'settled' AND j.state <> 'parked' AND j.state <> 'cancelled')
    AND (SELECT j.state = 'waiting' AND j.sequence > passed + 1 FROM onceward_jobs j
      WHERE j.group_name = name AND j.state IN ('waiting','parked') AND j.passed_over = 0 ORDER BY j.sequence LIMIT 1);

ALTER TABLE onceward_intents ADD COLUMN ask_first INTEGER NOT NULL DEFAULT 0 CHECK (ask_first IN (0,1));
ALTER TABLE onceward_history ADD COLUMN record TEXT;
DROP TRIGGER onceward_history_append_only;
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
