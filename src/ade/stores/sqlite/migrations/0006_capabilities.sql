-- What agents can do and tasks ask for. Tasks that ask for something stand in lines of their own: who cannot take them
-- never comes upon them.

ALTER TABLE task ADD COLUMN needs TEXT;
DROP INDEX task_ready;
CREATE INDEX task_ready ON task (queue, name, priority, seq) WHERE stage = 'ready' AND needs IS NULL;
CREATE INDEX task_asking ON task (queue, name, needs, priority, seq) WHERE stage = 'ready' AND needs IS NOT NULL;
DROP INDEX task_parked;
CREATE INDEX task_parked ON task (name, concurrency_key, queue, needs, priority, seq) WHERE stage = 'parked';

-- The lanes of tasks that ask for capabilities. The head of each is found behind that of the one before, so it does not
-- matter how many stand in them.
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

CREATE TABLE agent_before AS SELECT * FROM agent;
DROP TABLE agent;
CREATE TABLE agent (
    id            TEXT PRIMARY KEY,
    max_tasks     INTEGER NOT NULL CHECK (max_tasks > 0),
    status        TEXT    NOT NULL CHECK (status IN ('active', 'draining', 'offline')),
    registered_at INTEGER NOT NULL,
    seen_until    INTEGER NOT NULL,  -- steady time: its last sign of life counts until then
    type          TEXT,
    capabilities  TEXT    NOT NULL  -- with commas between
) WITHOUT ROWID;
INSERT INTO agent SELECT id, max_tasks, status, registered_at, seen_until, NULL, '' FROM agent_before;
DROP TABLE agent_before;
