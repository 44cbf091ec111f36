-- What was worked out from contents, and can be worked out again. Narrow, so that it is read whole in no time.
CREATE TABLE IF NOT EXISTS content (
    id   INTEGER PRIMARY KEY,
    blob TEXT NOT NULL,
    form TEXT NOT NULL,
    -- Of what is kept.
    bytes INTEGER NOT NULL,
    -- The day it was last asked for.
    used INTEGER NOT NULL,
    UNIQUE (blob, form)
) STRICT;

CREATE TABLE IF NOT EXISTS body (
    id    INTEGER PRIMARY KEY REFERENCES content (id) ON DELETE CASCADE,
    plain INTEGER NOT NULL,
    zstd  BLOB NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS made (version TEXT NOT NULL) STRICT;
