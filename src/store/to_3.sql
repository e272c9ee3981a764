-- Version 2 to 3: indexes for the lists of the console, and figures by the hour for its charts; the boot clock beside
-- what a look-up's lag runs from; what a worker can do. Once it is released: never to be edited.
CREATE INDEX onceward_intents_by_reference ON onceward_intents (reference) WHERE reference IS NOT NULL;
CREATE INDEX onceward_intents_by_account ON onceward_intents (account, id) WHERE account IS NOT NULL;
CREATE INDEX onceward_intents_by_kind ON onceward_intents (kind, id);
CREATE INDEX onceward_jobs_by_class ON onceward_jobs (error_class, id) WHERE error_class IS NOT NULL;
CREATE INDEX onceward_jobs_cancelled ON onceward_jobs (id) WHERE state = 'cancelled';
CREATE INDEX onceward_history_at ON onceward_history (at_ms, seq);
CREATE TABLE onceward_hours (
  hour_ms INTEGER NOT NULL,
  name    TEXT NOT NULL,
  value   INTEGER NOT NULL,
  PRIMARY KEY (hour_ms, name)
) STRICT, WITHOUT ROWID;
ALTER TABLE onceward_intents ADD COLUMN last_sent_boot_ms INTEGER;
ALTER TABLE onceward_intents ADD COLUMN not_found_boot_ms INTEGER;
ALTER TABLE onceward_owners ADD COLUMN kinds TEXT;
