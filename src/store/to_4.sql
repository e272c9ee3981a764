-- Version 3 to 4: restores a row each, and the doubt that they bring; generations that are over; the boot clock of a claim.
-- Once it is released: never to be edited.
ALTER TABLE onceward_intents ADD COLUMN doubt_since_ms INTEGER;
ALTER TABLE onceward_intents ADD COLUMN doubt_restore INTEGER;
ALTER TABLE onceward_intents ADD COLUMN proved INTEGER NOT NULL DEFAULT 0 CHECK (proved IN (0,1));
ALTER TABLE onceward_intents ADD COLUMN refused_directly INTEGER NOT NULL DEFAULT 0 CHECK (refused_directly IN (0,1));
ALTER TABLE onceward_intents ADD COLUMN waits_for_app_ms INTEGER;
ALTER TABLE onceward_intents ADD COLUMN bad_responses INTEGER NOT NULL DEFAULT 0;
ALTER TABLE onceward_jobs ADD COLUMN lease_boot_ms INTEGER;
ALTER TABLE onceward_jobs ADD COLUMN lease_process TEXT;
ALTER TABLE onceward_holds ADD COLUMN until_set_ms INTEGER;
CREATE TABLE onceward_generations (
  intent_id  INTEGER NOT NULL REFERENCES onceward_intents (id),
  generation INTEGER NOT NULL CHECK (generation >= 1),
  wire_key   TEXT NOT NULL,
  reference  TEXT,
  PRIMARY KEY (intent_id, generation)
) STRICT, WITHOUT ROWID;
CREATE INDEX onceward_generations_wire_key ON onceward_generations (wire_key);
CREATE TABLE onceward_restores (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  copied_ms   INTEGER NOT NULL,
  restored_ms INTEGER NOT NULL,
  restored_by TEXT NOT NULL,
  after_id    INTEGER NOT NULL,
  copy_seq    INTEGER NOT NULL,
  no_words_ms INTEGER,
  no_words_by TEXT,
  closed_ms   INTEGER,
  closed_by   TEXT,
  CHECK ((no_words_ms IS NULL) = (no_words_by IS NULL)),
  CHECK ((closed_ms IS NULL) = (closed_by IS NULL))
) STRICT;
CREATE INDEX onceward_intents_in_doubt ON onceward_intents (doubt_restore, id)
  WHERE doubt_since_ms IS NOT NULL AND state <> 'settled';
-- A file that was restored before: what was to be asked about first is in doubt by the restore that said so.
INSERT INTO onceward_restores (copied_ms, restored_ms, restored_by, after_id, copy_seq)
  SELECT CAST(c.value AS INTEGER), CAST(r.value AS INTEGER), 'before schema 4',
    (SELECT coalesce(max(id), 0) FROM onceward_intents),
    coalesce((SELECT CAST(value AS INTEGER) FROM onceward_meta WHERE name = 'restored_seq'), 0)
  FROM onceward_meta c, onceward_meta r
  WHERE c.name = 'restored_copy_ms' AND r.name = 'restored_ms';
UPDATE onceward_intents SET doubt_since_ms = (SELECT max(copied_ms) FROM onceward_restores),
    doubt_restore = (SELECT max(id) FROM onceward_restores)
  WHERE ask_first = 1 AND state <> 'settled' AND EXISTS (SELECT 1 FROM onceward_restores);
DELETE FROM onceward_meta WHERE name LIKE 'doubt_until:%' OR name IN ('restored_copy_ms','restored_ms','restored_seq');
ALTER TABLE onceward_intents DROP COLUMN ask_first;
