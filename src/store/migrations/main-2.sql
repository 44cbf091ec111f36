-- What a delivery is about, so that its place among the others is found without a look into its body; how that
-- body lies here; and what became of repositories that are no longer ours to look at.

-- Rows of the first version hold their bodies as they came.
ALTER TABLE inbox ADD COLUMN packing TEXT NOT NULL DEFAULT 'raw' CHECK (packing IN ('raw', 'zstd', 'dropped'));
-- Found in the delivery log later, not brought by a webhook.
ALTER TABLE inbox ADD COLUMN swept INTEGER NOT NULL DEFAULT 0;
ALTER TABLE inbox ADD COLUMN repository INTEGER;
ALTER TABLE inbox ADD COLUMN issue INTEGER;
-- Nothing of the same repository (or, where it names none, installation) may pass it in either direction.
ALTER TABLE inbox ADD COLUMN fence INTEGER NOT NULL DEFAULT 0;
-- When it was put off; a time to come means that the clock was set back since.
ALTER TABLE inbox ADD COLUMN put_at INTEGER;
-- Until when, put off, it holds back later ones about the same.
ALTER TABLE inbox ADD COLUMN holds_until INTEGER;
-- What GitHub numbers about what it says, where it numbers anything: two deliveries may tell of one thing.
ALTER TABLE inbox ADD COLUMN cause TEXT;

UPDATE inbox
SET repository = CASE json_type(CAST(body AS TEXT), '$.repository.id')
        WHEN 'integer' THEN json_extract(CAST(body AS TEXT), '$.repository.id') END,
    issue = CASE 'integer'
        WHEN json_type(CAST(body AS TEXT), '$.issue.number') THEN json_extract(CAST(body AS TEXT), '$.issue.number')
        WHEN json_type(CAST(body AS TEXT), '$.pull_request.number')
            THEN json_extract(CAST(body AS TEXT), '$.pull_request.number') END
WHERE state IN ('new', 'taken') AND json_valid(CAST(body AS TEXT));
UPDATE inbox SET fence = 1 WHERE event IN ('repository', 'installation', 'installation_repositories');

DROP INDEX inbox_unfinished;
CREATE INDEX inbox_unfinished ON inbox (repository, seq) WHERE state IN ('new', 'taken');
CREATE INDEX inbox_taken ON inbox (repository, seq) WHERE state = 'taken';
CREATE INDEX inbox_put_off ON inbox (due) WHERE state = 'new' AND due > 0;
CREATE INDEX inbox_whole ON inbox (state, ended_at) WHERE ended_at IS NOT NULL AND packing <> 'dropped';
CREATE INDEX inbox_dropped ON inbox (state, ended_at) WHERE ended_at IS NOT NULL AND packing = 'dropped';
CREATE INDEX inbox_cause ON inbox (cause) WHERE cause IS NOT NULL;

-- Since when it is gone from us: deleted, taken from the App, or the App from its account.
ALTER TABLE repository ADD COLUMN gone_at INTEGER;

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
