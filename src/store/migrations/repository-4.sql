-- What we commit on issues' branches: whatever else is there is somebody else's.
CREATE TABLE own_commit (
    run   INTEGER NOT NULL REFERENCES run (seq),
    visit INTEGER NOT NULL,
    key   TEXT NOT NULL,
    body  TEXT NOT NULL,
    at    INTEGER NOT NULL,
    PRIMARY KEY (run, visit, key)
) STRICT;

-- The last document of each earlier run is known from its state.
INSERT INTO own_commit (run, visit, key, body, at)
SELECT seq, visit, 'before', json_object('branch', proposal ->> 'branch', 'commit', proposal ->> 'commit',
           'files', json_array(json_array(proposal ->> 'path', proposal ->> 'document'))), updated_at
FROM (SELECT seq, visit, updated_at,
          CASE WHEN json_valid(CAST(state AS TEXT)) THEN CAST(state AS TEXT) -> 'proposal' END AS proposal FROM run)
WHERE proposal ->> 'commit' IS NOT NULL;
