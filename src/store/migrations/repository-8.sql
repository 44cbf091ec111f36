-- The operator's pages look through all repositories: for runs, those that need a person first and then the newest, without
-- their states, which are long; and for what was spent since some day.
CREATE INDEX run_shown ON run
    ((status = 'asking' OR parked IS NOT NULL) DESC, updated_at DESC, seq DESC, status, workflow);
CREATE INDEX call_at ON call (at);
