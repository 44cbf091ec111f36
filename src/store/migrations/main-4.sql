-- Ways to a model that failed, so that a restart does not forget which are to be left alone.
CREATE TABLE outage (
    way      TEXT PRIMARY KEY, -- provider:model
    failures INTEGER NOT NULL, -- in a row
    until    INTEGER NOT NULL  -- nobody takes it before then, once there are enough of them
) STRICT;
