-- Who may open the operator's pages: links that are good for one visit, and the sessions that come of them. Each is known by
-- the hash of a secret that only the browser has.

CREATE TABLE page_link (
    hash  TEXT PRIMARY KEY,
    acts  INTEGER NOT NULL, -- 1: whoever has it may act, and not only read
    until INTEGER NOT NULL,
    lasts INTEGER NOT NULL  -- milliseconds of the session that comes of it
) STRICT;

CREATE TABLE page_session (
    hash    TEXT PRIMARY KEY,
    acts    INTEGER NOT NULL,
    made_at INTEGER NOT NULL,
    until   INTEGER NOT NULL
) STRICT;
