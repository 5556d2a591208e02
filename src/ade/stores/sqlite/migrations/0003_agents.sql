-- Agents, and the units of their capacity that are in use: one lease for each holder.

CREATE TABLE agent (
    id            TEXT PRIMARY KEY,
    max_tasks     INTEGER NOT NULL CHECK (max_tasks > 0),
    status        TEXT    NOT NULL CHECK (status IN ('active', 'draining', 'offline')),
    registered_at INTEGER NOT NULL,
    seen_until    INTEGER NOT NULL  -- steady time: its last sign of life counts until then
) WITHOUT ROWID;

CREATE TABLE agent_lease (
    agent_id    TEXT    NOT NULL,
    holder      TEXT    NOT NULL,
    lease_until INTEGER NOT NULL,
    PRIMARY KEY (agent_id, holder)
) WITHOUT ROWID;

-- The first databases with version 2 do not have this table.
CREATE TABLE IF NOT EXISTS lock_rate (
    namespace TEXT    NOT NULL,
    owner     TEXT    NOT NULL,
    full_at   INTEGER NOT NULL,
    PRIMARY KEY (namespace, owner)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS lock_rate_full ON lock_rate (full_at);
