-- What nodes must agree on: a fingerprint of each table of their settings, as JSON, and the installations each one serves.

ALTER TABLE node ADD COLUMN settings TEXT NOT NULL DEFAULT '', ADD COLUMN allows BIGINT[] NOT NULL DEFAULT '{}';
