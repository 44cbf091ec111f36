-- Trigger labels that were dealt with, however we came to know of them.
CREATE TABLE labeling (
    repo  INTEGER NOT NULL,
    issue INTEGER NOT NULL,
    label TEXT NOT NULL COLLATE NOCASE,
    actor INTEGER NOT NULL,
    at    INTEGER NOT NULL, -- GitHub's time of it
    found INTEGER NOT NULL, -- 1: seen on the issue, 0: told by a webhook
    note  TEXT NOT NULL,
    PRIMARY KEY (repo, issue, label, actor, at)
) STRICT;
