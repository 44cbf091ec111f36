-- Which key of a model's maker is not to be used for which model, and until when. A key is known by its hash.

CREATE TABLE resting_key (
    key   TEXT NOT NULL,
    model TEXT NOT NULL,
    why   TEXT NOT NULL CHECK (why IN ('rate', 'quota', 'refused')),
    until INTEGER, -- none: until somebody puts it right
    PRIMARY KEY (key, model)
) STRICT;
