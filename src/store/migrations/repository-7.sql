-- How requests in free words were read; what was read once counts for the same words for a day.
CREATE TABLE route (
    run   INTEGER NOT NULL REFERENCES run (seq),
    visit INTEGER NOT NULL,
    key   TEXT NOT NULL,
    body  TEXT NOT NULL,
    at    INTEGER NOT NULL,
    PRIMARY KEY (run, visit, key)
) STRICT;
CREATE INDEX route_of_key ON route (body ->> 'key', at);
