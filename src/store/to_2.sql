-- Version 1 to 2: onceward_events gets an origin, a detail, further actions and scopes, and a chain, and groups say since
-- when a place is missing. Rust fills the chain from the old rows, which stand in onceward_step until then. As released:
-- never to be edited.
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
                                               'backup','restore','prune','clock','config','login')),
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
      WHERE j.group_name = name AND j.state IN ('scheduled','ready','running','unknown'))
    AND (SELECT j.state = 'waiting' AND j.sequence > passed + 1 FROM onceward_jobs j
      WHERE j.group_name = name AND j.state IN ('waiting','parked') AND j.passed_over = 0 ORDER BY j.sequence LIMIT 1);
