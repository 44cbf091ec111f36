-- What was worked out from contents, and can be worked out again. Another layout takes another name.
CREATE TABLE IF NOT EXISTS answer (
    -- Of the key.
    id    INTEGER PRIMARY KEY,
    plain INTEGER NOT NULL,
    zstd  BLOB NOT NULL
) STRICT;
