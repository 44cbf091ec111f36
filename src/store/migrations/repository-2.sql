-- The boot that may write leases here: one that is older and still alive is refused.
CREATE TABLE boot (epoch INTEGER PRIMARY KEY) STRICT;
INSERT INTO boot (epoch) VALUES (0);

-- Who holds a run is known to the process that has the directory, and written down no more.
UPDATE run SET taken = NULL;

-- What a run has asked of GitHub so far.
ALTER TABLE run ADD COLUMN api_calls INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN api_writes INTEGER NOT NULL DEFAULT 0;

-- Wishes that a run which came to nothing be tried again.
CREATE TABLE retry (
    cause TEXT PRIMARY KEY,
    run   INTEGER NOT NULL REFERENCES run (seq),
    by    TEXT NOT NULL,
    at    INTEGER NOT NULL
) STRICT;
