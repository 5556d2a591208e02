-- Locks. `lock_request` has the whole request; `lock_item` has what is asked for each resource, in the order of its line.

CREATE TABLE lock_request (
    id          TEXT PRIMARY KEY,
    namespace   TEXT    NOT NULL,
    owner       TEXT    NOT NULL,
    granted     INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,  -- of a waiter: the end of its wait, if that comes earlier
    called      INTEGER NOT NULL,  -- let in, or told to give way, while nobody was there to hear of it
    request     TEXT    NOT NULL
) WITHOUT ROWID;
CREATE INDEX lock_called ON lock_request (id) WHERE called;
CREATE INDEX lock_lease ON lock_request (lease_until);
CREATE INDEX lock_owner ON lock_request (namespace, owner);

CREATE TABLE lock_item (
    namespace  TEXT    NOT NULL,
    resource   TEXT    NOT NULL,
    granted    INTEGER NOT NULL,
    rank       REAL    NOT NULL,
    seq        INTEGER NOT NULL,
    request_id TEXT    NOT NULL,
    PRIMARY KEY (namespace, resource, granted, rank, seq, request_id)
) WITHOUT ROWID;

-- The highest seq and the highest token that were ever given in a namespace.
CREATE TABLE lock_namespace (
    name  TEXT PRIMARY KEY,
    seq   INTEGER NOT NULL,
    token INTEGER NOT NULL
) WITHOUT ROWID;

-- How often owners may ask: when all of it is free again, in microseconds of steady time.
CREATE TABLE lock_rate (
    namespace TEXT    NOT NULL,
    owner     TEXT    NOT NULL,
    full_at   INTEGER NOT NULL,
    PRIMARY KEY (namespace, owner)
) WITHOUT ROWID;
CREATE INDEX lock_rate_full ON lock_rate (full_at);
