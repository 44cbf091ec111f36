-- What belongs to the whole server. Times are milliseconds since 1970 (UTC).

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

-- Every webhook that was answered 202, by GitHub's delivery id.
CREATE TABLE inbox (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    event        TEXT NOT NULL,
    installation INTEGER,
    body         BLOB NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('new', 'taken', 'done', 'dead')),
    attempts     INTEGER NOT NULL DEFAULT 0,
    due          INTEGER NOT NULL,
    epoch        INTEGER, -- the boot that took it
    note         TEXT,
    received_at  INTEGER NOT NULL,
    ended_at     INTEGER
) STRICT;
CREATE INDEX inbox_unfinished ON inbox (seq) WHERE state IN ('new', 'taken');

CREATE TABLE installation (
    id        INTEGER PRIMARY KEY,
    account   TEXT NOT NULL,
    suspended INTEGER NOT NULL
) STRICT;

-- `seen` orders sightings: a name belongs to the repository that was last seen under it.
CREATE TABLE repository (
    id           INTEGER PRIMARY KEY,
    installation INTEGER NOT NULL,
    owner        TEXT NOT NULL COLLATE NOCASE,
    name         TEXT NOT NULL COLLATE NOCASE,
    seen         INTEGER NOT NULL UNIQUE
) STRICT;
CREATE INDEX repository_by_name ON repository (owner, name, seen);

-- "Look into this repository's database at `due`"; without a time: at the next boot.
CREATE TABLE hint (
    repo INTEGER PRIMARY KEY,
    seq  INTEGER NOT NULL,
    due  INTEGER
) STRICT;
