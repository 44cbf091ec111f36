-- By how much people raised the caps of a run.
CREATE TABLE raise (
    run   INTEGER NOT NULL REFERENCES run (seq),
    visit INTEGER NOT NULL,
    key   TEXT NOT NULL,
    body  TEXT NOT NULL,
    at    INTEGER NOT NULL,
    PRIMARY KEY (run, visit, key)
) STRICT;
