-- Version 3 to 4: restores a row each, and the doubt that they bring; generations that are over; the boot clock of a claim.
-- Once it is released: never to be edited.
ALTER TABLE onceward_intents ADD COLUMN doubt_since_ms INTEGER;
ALTER TABLE onceward_intents ADD COLUMN doubt_restore INTEGER;
ALTER TABLE onceward_intents ADD COLUMN proved INTEGER NOT NULL DEFAULT 0 CHECK (proved IN (0,1));
ALTER TABLE onceward_intents ADD COLUMN refused_directly INTEGER NOT NULL DEFAULT 0 CHECK (refused_directly IN (0,1));
ALTER TABLE onceward_intents ADD COLUMN waits_for_app_ms INTEGER;
ALTER TABLE onceward_jobs ADD COLUMN lease_boot_ms INTEGER;
CREATE TABLE onceward_generations (
  wire_key   TEXT NOT NULL PRIMARY KEY,
  intent_id  INTEGER NOT NULL REFERENCES onceward_intents (id),
  generation INTEGER NOT NULL CHECK (generation >= 1),
  reference  TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX onceward_generations_of ON onceward_generations (intent_id, generation);
CREATE TABLE onceward_restores (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  copied_ms   INTEGER NOT NULL,
  restored_ms INTEGER NOT NULL,
  restored_by TEXT NOT NULL,
  no_words_ms INTEGER,
  no_words_by TEXT,
  closed_ms   INTEGER,
  closed_by   TEXT,
  CHECK ((no_words_ms IS NULL) = (no_words_by IS NULL)),
  CHECK ((closed_ms IS NULL) = (closed_by IS NULL))
) STRICT;
