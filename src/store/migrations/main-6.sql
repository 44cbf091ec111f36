-- What calls may cost or did cost, by installation and time: a copy of the repositories' own ledgers, in which what they
-- share is added up. A row is here before a paid call is made, so that it may be too much and never too little.

CREATE TABLE spend (
    repo         INTEGER NOT NULL,
    run          INTEGER NOT NULL,
    visit        INTEGER NOT NULL,
    key          TEXT NOT NULL,
    installation INTEGER NOT NULL,
    microusd     INTEGER NOT NULL,
    at           INTEGER NOT NULL, -- when the ledger's row was written last
    open         INTEGER NOT NULL, -- 1: what the ledger says of it by now is not known here
    PRIMARY KEY (repo, run, visit, key)
) STRICT;
CREATE INDEX spend_by_installation ON spend (installation, at);
CREATE INDEX spend_open ON spend (repo) WHERE open = 1;

-- Repositories whose rows are to be read again from their ledgers before more is spent.
CREATE TABLE spend_behind (repo INTEGER PRIMARY KEY) STRICT;
