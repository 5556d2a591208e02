-- The schema of the embedded store, to read: the migrations create it, and a test compares both. `task` is narrow: only
-- the columns that claims, leases, and sweeps use. Arguments and options, which are written once, are in `task_detail`;
-- the outcome of runs is in `task_outcome`. The view `record` joins them.

CREATE TABLE task (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,  -- age: lower is older
    id              TEXT    NOT NULL UNIQUE,
    queue           TEXT    NOT NULL,
    name            TEXT    NOT NULL,
    status          TEXT    NOT NULL,
    -- why a claimable task is or is not handed out: ready | delayed (until run_after) | blocked (by dependencies)
    -- | parked (its concurrency key is busy); NULL when the status is not claimable
    stage           TEXT,
    priority        INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9),
    run_after       INTEGER NOT NULL,
    deadline        INTEGER,
    version         INTEGER NOT NULL DEFAULT 1,
    generation      INTEGER NOT NULL DEFAULT 1,
    attempt         INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    run_id          TEXT,
    worker_id       TEXT,
    lease_until     INTEGER,
    waiting_on      INTEGER NOT NULL DEFAULT 0 CHECK (waiting_on >= 0),
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    started_at      INTEGER,
    finished_at     INTEGER,
    discarded       INTEGER NOT NULL DEFAULT 0,  -- a dead letter somebody has dealt with
    parent_id       TEXT,
    idempotency_key TEXT,
    args_digest     TEXT,
    concurrency_key TEXT,
    needs           TEXT,
    CHECK ((status = 'running') = (lease_until IS NOT NULL)),
    CHECK ((stage IS NOT NULL) = (status IN ('pending', 'stalled')))
);

-- Tasks that require capabilities (`needs`, separated by commas) have lanes of their own.
CREATE INDEX task_ready ON task (queue, name, priority, seq) WHERE stage = 'ready' AND needs IS NULL;
CREATE INDEX task_asking ON task (queue, name, needs, priority, seq) WHERE stage = 'ready' AND needs IS NOT NULL;
CREATE INDEX task_delayed ON task (run_after) WHERE stage = 'delayed';
CREATE INDEX task_parked ON task (name, concurrency_key, queue, needs, priority, seq) WHERE stage = 'parked';
CREATE INDEX task_lease ON task (lease_until) WHERE status = 'running';
CREATE INDEX task_key_running ON task (name, concurrency_key) WHERE status = 'running' AND concurrency_key IS NOT NULL;
CREATE INDEX task_deadline ON task (deadline) WHERE deadline IS NOT NULL AND stage IS NOT NULL;
CREATE INDEX task_finished ON task (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX task_rare ON task (status, seq)
    WHERE status NOT IN ('pending', 'running', 'completed');
CREATE INDEX task_child ON task (parent_id, seq) WHERE parent_id IS NOT NULL;
CREATE UNIQUE INDEX task_key ON task (queue, name, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- The lanes of tasks that require capabilities. Each head is found after the previous one, so the number of tasks in a
-- lane does not matter.
CREATE VIEW asking_lane (queue, name, needs) AS
WITH RECURSIVE head (seq) AS (
    SELECT (SELECT seq FROM task INDEXED BY task_asking
             WHERE stage = 'ready' AND needs IS NOT NULL ORDER BY queue, name, needs LIMIT 1)
     UNION ALL
    SELECT coalesce((SELECT n.seq FROM task n INDEXED BY task_asking
                      WHERE n.stage = 'ready' AND n.needs IS NOT NULL AND n.queue = t.queue AND n.name = t.name
                        AND n.needs > t.needs
                      ORDER BY n.needs LIMIT 1),
                    (SELECT n.seq FROM task n INDEXED BY task_asking
                      WHERE n.stage = 'ready' AND n.needs IS NOT NULL AND n.queue = t.queue AND n.name > t.name
                      ORDER BY n.name, n.needs LIMIT 1),
                    (SELECT n.seq FROM task n INDEXED BY task_asking
                      WHERE n.stage = 'ready' AND n.needs IS NOT NULL AND n.queue > t.queue
                      ORDER BY n.queue, n.name, n.needs LIMIT 1))
      FROM head JOIN task t ON t.seq = head.seq)
SELECT t.queue, t.name, t.needs FROM head JOIN task t ON t.seq = head.seq;

CREATE TABLE task_detail (
    seq    INTEGER PRIMARY KEY,
    detail TEXT NOT NULL
);

-- Tasks by author:<id>, tag:<tag>, resource:<name>, team:<name>, and ticket:<reference>. Tasks without any of them have
-- no row here.
CREATE TABLE task_label (
    label TEXT    NOT NULL,  -- team:<name> or ticket:<reference>
    seq   INTEGER NOT NULL,
    PRIMARY KEY (label, seq)
) WITHOUT ROWID;
CREATE INDEX task_label_task ON task_label (seq);

CREATE TABLE task_outcome (
    seq      INTEGER PRIMARY KEY,
    outcome  TEXT,
    progress TEXT,
    expires_at INTEGER  -- when the result is to be forgotten
);
CREATE INDEX outcome_expiry ON task_outcome (expires_at) WHERE expires_at IS NOT NULL;

-- The whole task as one JSON object, ready to decode.
CREATE VIEW record (seq, json) AS
SELECT t.seq,
       concat(  -- writes the text once; a chain of || would copy it at every step
           '{"id":"', t.id, '","queue":"', t.queue, '","name":"', t.name, '","status":"', t.status,
           '","priority":', t.priority, ',"run_after":', t.run_after, ',"version":', t.version,
           ',"generation":', t.generation, ',"attempt":', t.attempt, ',"waiting_on":', t.waiting_on,
           ',"created_at":', t.created_at, ',"updated_at":', t.updated_at,
           ',"deadline":' || t.deadline, ',"run_id":' || iif(t.run_id IS NULL, NULL, json_quote(t.run_id)),
           ',"worker_id":' || iif(t.worker_id IS NULL, NULL, json_quote(t.worker_id)),
           ',"lease_until":' || t.lease_until, ',"started_at":' || t.started_at,
           ',"finished_at":' || t.finished_at, iif(t.discarded, ',"discarded":true', ''),
           ',"progress":' || o.progress,
           ',' || substr(o.outcome, 2, length(o.outcome) - 2),
           iif(d.detail = '{}', '}', ',' || substr(d.detail, 2)))  -- nothing but defaults leaves it empty
  FROM task t
  JOIN task_detail d ON d.seq = t.seq
  LEFT JOIN task_outcome o ON o.seq = t.seq;

-- Which task waits for which. A row is deleted when the dependency completes; it stays, marked as broken, when the
-- dependency ends in another way.
CREATE TABLE dependency (
    on_seq   INTEGER NOT NULL,
    task_seq INTEGER NOT NULL,
    tolerant INTEGER NOT NULL,  -- run anyway
    broken   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (on_seq, task_seq)
) WITHOUT ROWID;
CREATE INDEX dependency_task ON dependency (task_seq);
CREATE INDEX dependency_broken ON dependency (task_seq) WHERE broken = 1;

CREATE TABLE event (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    type     TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    task_seq INTEGER,
    task_id  TEXT,
    actor    TEXT,
    payload  TEXT    NOT NULL
);
CREATE INDEX event_task ON event (task_seq) WHERE task_seq IS NOT NULL;

CREATE TABLE cursor (
    name TEXT PRIMARY KEY,
    seq  INTEGER NOT NULL
) WITHOUT ROWID;

-- The number of tasks by queue, name, and status. Every commit updates it, so reading it never counts tasks.
CREATE TABLE tally (
    queue  TEXT    NOT NULL,
    name   TEXT    NOT NULL,
    status TEXT    NOT NULL,
    count  INTEGER NOT NULL,
    PRIMARY KEY (queue, name, status)
) WITHOUT ROWID;

CREATE TABLE queue (
    name      TEXT PRIMARY KEY,
    paused    INTEGER NOT NULL DEFAULT 0,
    max_depth INTEGER CHECK (max_depth >= 0)
) WITHOUT ROWID;

CREATE TABLE definition (
    name         TEXT PRIMARY KEY,
    definition   TEXT    NOT NULL,
    limited      INTEGER NOT NULL,  -- has a concurrency or rate limit, so claims must look at it
    rate_full_at INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE worker (
    id              TEXT PRIMARY KEY,
    worker          TEXT    NOT NULL,
    heartbeat_until INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE duty (
    name   TEXT PRIMARY KEY,
    holder TEXT    NOT NULL,
    until  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE effect (
    key     TEXT PRIMARY KEY,
    run_id  TEXT    NOT NULL,
    done    INTEGER NOT NULL,
    answer  TEXT,
    at      INTEGER NOT NULL,
    task_id TEXT    NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX effect_done ON effect (at) WHERE done = 1;

CREATE TABLE output (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    task_seq INTEGER NOT NULL,
    run_id   TEXT    NOT NULL,
    attempt  INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    stream   TEXT    NOT NULL,
    text     TEXT    NOT NULL
);
CREATE INDEX output_task ON output (task_seq, seq);

CREATE TABLE schedule (
    name     TEXT PRIMARY KEY,
    schedule TEXT    NOT NULL,
    next_at  INTEGER NOT NULL,
    paused   INTEGER NOT NULL
) WITHOUT ROWID;

-- Copies of records that could not be decoded, for an operator to inspect.
CREATE TABLE quarantine (
    task_id TEXT PRIMARY KEY,
    detail  TEXT,
    outcome TEXT,
    at      INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- Locks. `lock_request` has the whole request; `lock_item` has one row for each of its resources, in the order of the
-- resource's wait queue.

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

-- The highest seq and fencing token of each namespace.
CREATE TABLE lock_namespace (
    name  TEXT PRIMARY KEY,
    seq   INTEGER NOT NULL,
    token INTEGER NOT NULL
) WITHOUT ROWID;

-- Rate limits of owners: when all of it is available again, in microseconds of steady time.
CREATE TABLE lock_rate (
    namespace TEXT    NOT NULL,
    owner     TEXT    NOT NULL,
    full_at   INTEGER NOT NULL,
    PRIMARY KEY (namespace, owner)
) WITHOUT ROWID;
CREATE INDEX lock_rate_full ON lock_rate (full_at);

-- Agents, and the leases on their capacity: one row for each holder of a unit.

CREATE TABLE agent (
    id            TEXT PRIMARY KEY,
    max_tasks     INTEGER NOT NULL CHECK (max_tasks > 0),
    status        TEXT    NOT NULL CHECK (status IN ('active', 'draining', 'offline')),
    registered_at INTEGER NOT NULL,
    seen_until    INTEGER NOT NULL,  -- steady time: its last sign of life counts until then
    type          TEXT,
    capabilities  TEXT    NOT NULL  -- with commas between
) WITHOUT ROWID;

CREATE TABLE agent_lease (
    agent_id    TEXT    NOT NULL,
    holder      TEXT    NOT NULL,
    lease_until INTEGER NOT NULL,
    PRIMARY KEY (agent_id, holder)
) WITHOUT ROWID;

-- Documents: accounts, rules, and settings, each stored whole under a kind and an id.

CREATE TABLE document (
    kind       TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    version    INTEGER NOT NULL CHECK (version > 0),
    expires_at INTEGER,  -- wall time: from then on it is not there
    body       TEXT    NOT NULL,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;
CREATE INDEX document_end ON document (expires_at) WHERE expires_at IS NOT NULL;

-- The highest deleted version of each kind. New documents start above it, so no version is used twice.
CREATE TABLE document_mark (
    kind    TEXT PRIMARY KEY,
    version INTEGER NOT NULL
) WITHOUT ROWID;

-- Rate limits, such as of sign-in attempts: when all of it is available again, in microseconds of steady time.
CREATE TABLE document_rate (
    key     TEXT PRIMARY KEY,
    full_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX document_rate_full ON document_rate (full_at);

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
