-- Everything about one repository's runs. Times are milliseconds since 1970 (UTC).

CREATE TABLE cancel (
    id    INTEGER PRIMARY KEY,
    cause TEXT NOT NULL UNIQUE,
    actor TEXT NOT NULL, -- JSON
    why   TEXT NOT NULL,
    at    INTEGER NOT NULL
) STRICT;

CREATE TABLE run (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    workflow   TEXT NOT NULL,
    version    INTEGER NOT NULL,      -- of the workflow, pinned at the start
    issue      INTEGER NOT NULL,
    cause      TEXT NOT NULL UNIQUE,
    request    TEXT NOT NULL,         -- the trigger, JSON
    status     TEXT NOT NULL CHECK (status IN
               ('ready', 'asking', 'waiting', 'halting', 'done', 'failed', 'stopped')),
    step       TEXT NOT NULL,         -- the step's serde form
    state      BLOB NOT NULL,
    visit      INTEGER NOT NULL,
    moves      INTEGER NOT NULL,      -- since the last human answer
    attempts   INTEGER NOT NULL,
    due        INTEGER,               -- when it wants a worker; none: not before someone speaks
    taken      INTEGER,               -- the boot that holds it
    lease      INTEGER NOT NULL,      -- grows with every claim and save; fences late writers
    parked     INTEGER,               -- the boot that could not read it
    halt       TEXT,                  -- why it is being ended, JSON
    why        TEXT,                  -- the same for people
    outcome    TEXT,                  -- JSON
    cancel     INTEGER REFERENCES cancel (id),
    started_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX run_one_live ON run (workflow, issue)
    WHERE status IN ('ready', 'asking', 'waiting', 'halting');
CREATE INDEX run_by_issue ON run (issue);

-- One row a visit: the checkpoint it began from, and how it was left.
CREATE TABLE trail (
    run        INTEGER NOT NULL REFERENCES run (seq),
    visit      INTEGER NOT NULL,
    step       TEXT NOT NULL,
    state      BLOB NOT NULL,
    entered_at INTEGER NOT NULL,
    left_at    INTEGER,
    how        TEXT,
    PRIMARY KEY (run, visit)
) STRICT;

CREATE TABLE journal (
    run      INTEGER NOT NULL REFERENCES run (seq),
    visit    INTEGER NOT NULL,
    key      TEXT NOT NULL,
    value    BLOB, -- none: begun
    begun_at INTEGER NOT NULL,
    done_at  INTEGER,
    PRIMARY KEY (run, visit, key)
) STRICT;

CREATE TABLE document (
    hash       TEXT PRIMARY KEY,
    bytes      INTEGER NOT NULL, -- before compression
    zstd       BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE gate (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    run       INTEGER NOT NULL REFERENCES run (seq),
    visit     INTEGER NOT NULL,
    spec      TEXT NOT NULL, -- JSON
    opened_at INTEGER NOT NULL,
    closed_at INTEGER
) STRICT;
CREATE UNIQUE INDEX gate_one_open ON gate (run) WHERE closed_at IS NULL;

-- `subject` is the gate's at the moment of the answer: what the person was looking at.
CREATE TABLE answer (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    cause       TEXT NOT NULL UNIQUE,
    gate        INTEGER NOT NULL REFERENCES gate (id),
    run         INTEGER NOT NULL REFERENCES run (seq),
    subject     TEXT NOT NULL,
    body        TEXT NOT NULL, -- JSON
    state       TEXT NOT NULL CHECK (state IN ('waiting', 'consumed', 'late')),
    received_at INTEGER NOT NULL
) STRICT;
CREATE INDEX answer_waiting ON answer (gate) WHERE state = 'waiting';

-- The ledgers. `body` is the typed row as JSON; what is searched by is derived from it.
CREATE TABLE call (
    run    INTEGER NOT NULL REFERENCES run (seq),
    visit  INTEGER NOT NULL,
    key    TEXT NOT NULL,
    body   TEXT NOT NULL,
    at     INTEGER NOT NULL,
    status TEXT AS (body ->> 'status') VIRTUAL,
    PRIMARY KEY (run, visit, key)
) STRICT;

CREATE TABLE verdict (
    run      INTEGER NOT NULL REFERENCES run (seq),
    visit    INTEGER NOT NULL,
    key      TEXT NOT NULL,
    body     TEXT NOT NULL,
    at       INTEGER NOT NULL,
    document TEXT AS (body ->> 'document') VIRTUAL,
    PRIMARY KEY (run, visit, key)
) STRICT;

CREATE TABLE finding (
    run   INTEGER NOT NULL REFERENCES run (seq),
    visit INTEGER NOT NULL,
    key   TEXT NOT NULL,
    body  TEXT NOT NULL,
    at    INTEGER NOT NULL,
    PRIMARY KEY (run, visit, key)
) STRICT;

CREATE TABLE approval (
    run      INTEGER NOT NULL REFERENCES run (seq),
    visit    INTEGER NOT NULL,
    key      TEXT NOT NULL,
    body     TEXT NOT NULL,
    at       INTEGER NOT NULL,
    document TEXT AS (body ->> 'document') VIRTUAL,
    PRIMARY KEY (run, visit, key)
) STRICT;

-- Each row's hash covers the one before it, so that none can be altered or left out unseen.
CREATE TABLE audit (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    run      INTEGER NOT NULL,
    visit    INTEGER NOT NULL,
    key      TEXT NOT NULL,
    what     TEXT NOT NULL,
    detail   TEXT NOT NULL, -- JSON
    at       INTEGER NOT NULL,
    previous TEXT NOT NULL,
    hash     TEXT NOT NULL UNIQUE,
    UNIQUE (run, visit, key)
) STRICT;
