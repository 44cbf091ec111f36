-- What people say of a run's findings while it lives.
CREATE TABLE remark (
    run    INTEGER NOT NULL REFERENCES run (seq),
    number INTEGER NOT NULL, -- within the run, from 1
    cause  TEXT NOT NULL UNIQUE,
    body   TEXT NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (run, number)
) STRICT;

-- How many of them the next attempt at a step may read: as many at each attempt between two saves.
ALTER TABLE run ADD COLUMN remarks INTEGER NOT NULL DEFAULT 0;

-- What runs leave for the stages that follow on an issue, whichever issue that is.
CREATE TABLE artifact (
    run   INTEGER NOT NULL REFERENCES run (seq),
    visit INTEGER NOT NULL,
    key   TEXT NOT NULL,
    body  TEXT NOT NULL,
    at    INTEGER NOT NULL,
    PRIMARY KEY (run, visit, key)
) STRICT;
CREATE INDEX artifact_of_issue ON artifact (body ->> 'issue');
