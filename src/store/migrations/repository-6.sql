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
