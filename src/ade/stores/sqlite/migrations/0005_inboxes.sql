-- Inboxes of conversations: a small head that every write replaces, and items that never change.

CREATE TABLE inbox (
    id         TEXT    NOT NULL PRIMARY KEY,
    version    INTEGER NOT NULL CHECK (version > 0),
    consumer   TEXT,
    items      INTEGER NOT NULL CHECK (items >= 0),
    since      INTEGER,           -- wall time: when the oldest item was put in; NULL when there is none
    held_until INTEGER,           -- steady time: until then a batch is out
    written_at INTEGER NOT NULL,  -- wall time
    writes     TEXT    NOT NULL,  -- ids of the newest writes, so that one that is repeated is known again
    head       TEXT    NOT NULL,
    CHECK ((since IS NULL) = (items = 0))
);
CREATE INDEX inbox_fed ON inbox (consumer, since) WHERE consumer IS NOT NULL AND since IS NOT NULL;
CREATE INDEX inbox_held ON inbox (held_until) WHERE held_until IS NOT NULL;
CREATE INDEX inbox_empty ON inbox (written_at) WHERE since IS NULL;

CREATE TABLE inbox_item (
    inbox_id TEXT    NOT NULL,
    seq      INTEGER NOT NULL,
    item     TEXT    NOT NULL,
    PRIMARY KEY (inbox_id, seq)
);
