-- Of what was put off, what holds nobody back sleeps until it is due, and is not looked at before that: however much of
-- it there is, it costs nothing to take something else.

ALTER TABLE inbox ADD COLUMN asleep INTEGER NOT NULL DEFAULT 0;

DROP INDEX inbox_unfinished;
CREATE INDEX inbox_awake ON inbox (repository, seq) WHERE state IN ('new', 'taken') AND asleep = 0;
CREATE INDEX inbox_put_at ON inbox (put_at) WHERE state = 'new' AND due > 0;
CREATE INDEX inbox_holding ON inbox (holds_until) WHERE state = 'new' AND due > 0 AND asleep = 0;
