-- Claims and leases. A lane is the ready tasks of one queue and task name, and of one set of required capabilities if
-- they require any, in the order of priority and age.

-- name: claims.state
-- Read everything a claim depends on, as one JSON array of three: whether delayed tasks are due; the lanes [queue,
-- name] with claimable tasks in queues that are not paused; and the names with limits, as [definition, state of the
-- rate limit, running tasks].
SELECT json_array(
    EXISTS (SELECT 1 FROM task INDEXED BY task_delayed WHERE stage = 'delayed' AND run_after <= :now),
    json((SELECT json_group_array(json_array(queue, name))
            FROM (SELECT DISTINCT lane.queue, lane.name
                    FROM tally AS lane
                   WHERE lane.status IN ('pending', 'stalled') AND lane.count > 0
                     AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.name = lane.queue AND q.paused)))),
    json((SELECT json_group_array(json_array(d.definition, d.rate_full_at,
                     coalesce((SELECT sum(count) FROM tally WHERE name = d.name AND status = 'running'), 0)))
            FROM definition d
           WHERE d.limited)))

-- name: claims.promote_due
-- Make delayed tasks ready when they are due.
UPDATE task SET stage = 'ready'
 WHERE seq IN (SELECT seq FROM task INDEXED BY task_delayed
                WHERE stage = 'delayed' AND run_after <= :now ORDER BY run_after LIMIT 1000)

-- name: claims.lane_head
-- Read the head of a lane after a position, as one JSON array of [priority, seq, concurrency_key, status, worker_id].
SELECT json_group_array(json_array(priority, seq, concurrency_key, status, worker_id))
  FROM (SELECT priority, seq, concurrency_key, status, worker_id
          FROM task INDEXED BY task_ready
         WHERE stage = 'ready' AND needs IS NULL AND queue = :queue AND name = :name
           AND (priority, seq) > (:priority, :seq)
         ORDER BY priority, seq
         LIMIT :limit)

-- name: claims.capability_lanes
-- List the lanes of tasks that require capabilities, as one JSON array of [queue, name, needs], except in paused
-- queues.
SELECT json_group_array(json_array(l.queue, l.name, l.needs))
  FROM asking_lane AS l
 WHERE NOT EXISTS (SELECT 1 FROM queue q WHERE q.name = l.queue AND q.paused)

-- name: claims.capability_lane_head
-- Read the head of a lane of tasks that require the same capabilities, in the form of claims.lane_head.
SELECT json_group_array(json_array(priority, seq, concurrency_key, status, worker_id))
  FROM (SELECT priority, seq, concurrency_key, status, worker_id
          FROM task INDEXED BY task_asking
         WHERE stage = 'ready' AND needs IS NOT NULL AND queue = :queue AND name = :name AND needs = :needs
           AND (priority, seq) > (:priority, :seq)
         ORDER BY priority, seq
         LIMIT :limit)

-- name: claims.count_running_keys
-- Count the running tasks of each concurrency key. :rows is a JSON array of [name, key].
SELECT k.value ->> 0, k.value ->> 1,
       (SELECT count(*) FROM task INDEXED BY task_key_running
         WHERE status = 'running' AND concurrency_key IS NOT NULL
           AND name = k.value ->> 0 AND concurrency_key = k.value ->> 1)
  FROM jsonb_each(:rows) AS k

-- name: claims.assign
-- Assign tasks to one worker. This starts the attempt. :rows is a JSON array of [seq, run_id].
UPDATE task
   SET status = 'running', stage = NULL, version = version + 1, attempt = attempt + 1, run_id = c.value ->> 1,
       worker_id = :worker_id, lease_until = :lease_until, started_at = :now, updated_at = :now
  FROM jsonb_each(:rows) AS c
 WHERE task.seq = c.value ->> 0

-- name: claims.insert_events
-- Append the events of a claim. :rows is a JSON array of [seq, run_id], in the order of the claim.
INSERT INTO event (type, at, task_seq, task_id, payload)
SELECT 'task.claimed', :now, t.seq, t.id, json_object('attempt', t.attempt, 'run_id', t.run_id, 'worker', t.worker_id)
  FROM jsonb_each(:rows) AS c
  JOIN task t ON t.seq = c.value ->> 0
 ORDER BY c.key

-- name: claims.add_digests
-- Add the digests of governed tasks to the events of this claim. :rows is a JSON array of [id, run_id, digest].
UPDATE event SET payload = json_set(payload, '$.digest', c.value ->> 2)
  FROM jsonb_each(:rows) AS c
 WHERE event.task_seq = (SELECT seq FROM task WHERE id = c.value ->> 0)
   AND event.type = 'task.claimed' AND event.payload ->> '$.run_id' = c.value ->> 1

-- name: claims.insert_reclaim_events
-- Append the events of tasks reclaimed from a lost worker. :rows is a JSON array of [seq, previous worker].
INSERT INTO event (type, at, task_seq, task_id, payload)
SELECT 'task.reclaimed', :now, t.seq, t.id,
       json_object('attempt', t.attempt, 'previous_worker', c.value ->> 1, 'new_worker', t.worker_id, 'entry', t.seq)
  FROM jsonb_each(:rows) AS c
  JOIN task t ON t.seq = c.value ->> 0

-- name: claims.find_by_run
-- Find tasks that run under one of these run ids: after a claim whose outcome is unknown. :run_ids is a JSON array.
SELECT run_id, seq
  FROM task INDEXED BY task_lease
 WHERE status = 'running' AND run_id IN (SELECT value FROM json_each(:run_ids))

-- name: claims.list_running_by_key
-- List the running tasks of one name and concurrency key.
SELECT id FROM task INDEXED BY task_key_running
 WHERE status = 'running' AND concurrency_key IS NOT NULL AND name = :name AND concurrency_key = :key ORDER BY seq

-- name: claims.is_run_live
-- Check whether a run holds a task now.
SELECT 1 FROM task WHERE id = :task_id AND status = 'running' AND run_id = :run_id

-- name: claims.renew_leases
-- Extend the leases of a worker's runs. A lease never gets shorter. :run_ids is a JSON array.
UPDATE task SET lease_until = max(lease_until, :until)
 WHERE seq IN (SELECT seq FROM task INDEXED BY task_lease
                WHERE status = 'running' AND worker_id = :worker_id
                  AND run_id IN (SELECT value FROM json_each(:run_ids)))
RETURNING run_id

-- name: claims.list_lost_runs
-- Read the task statuses of runs that no longer run. :rows is a JSON array of [run_id, task_id].
SELECT l.value ->> 0, t.status FROM jsonb_each(:rows) AS l LEFT JOIN task t ON t.id = l.value ->> 1

-- name: claims.due_expired
-- List running tasks whose lease has expired, the earliest first.
SELECT t.seq, CAST(r.json AS BLOB) FROM task t INDEXED BY task_lease JOIN record r ON r.seq = t.seq
 WHERE t.status = 'running' AND t.lease_until < :steady ORDER BY t.lease_until LIMIT :limit

-- name: claims.due_overdue
-- List tasks that did not start before their deadline.
SELECT t.seq, CAST(r.json AS BLOB) FROM task t INDEXED BY task_deadline JOIN record r ON r.seq = t.seq
 WHERE t.deadline IS NOT NULL AND t.stage IS NOT NULL AND t.deadline <= :now ORDER BY t.deadline LIMIT :limit

-- name: claims.park
-- Park tasks whose concurrency key is busy: they are not ready until a running task of that key ends. :seqs is a JSON
-- array.
UPDATE task SET stage = 'parked' WHERE seq IN (SELECT value FROM json_each(:seqs))

-- name: claims.unpark_next
-- A running task with this concurrency key ended: make the next ones ready. That is the first of each queue and of each
-- set of required capabilities, because not every worker serves all of them. The claim chooses one of them and parks
-- the others again.
UPDATE task SET stage = 'ready'
 WHERE seq IN (
    WITH RECURSIVE first (seq) AS (
        SELECT (SELECT seq FROM task INDEXED BY task_parked
                 WHERE stage = 'parked' AND name = :name AND concurrency_key = :key
                 ORDER BY queue, needs, priority, seq LIMIT 1)
         UNION ALL
        SELECT coalesce((SELECT p.seq FROM task p INDEXED BY task_parked
                          WHERE p.stage = 'parked' AND p.name = :name AND p.concurrency_key = :key
                            AND p.queue = t.queue AND p.needs > coalesce(t.needs, '')
                          ORDER BY p.needs, p.priority, p.seq LIMIT 1),
                        (SELECT p.seq FROM task p INDEXED BY task_parked
                          WHERE p.stage = 'parked' AND p.name = :name AND p.concurrency_key = :key
                            AND p.queue > t.queue
                          ORDER BY p.queue, p.needs, p.priority, p.seq LIMIT 1))
          FROM first JOIN task t ON t.seq = first.seq)
    SELECT seq FROM first WHERE seq IS NOT NULL)

-- name: claims.unpark_name
-- The limits of a name changed: make its parked tasks ready, so that the next claim applies the new limits.
UPDATE task SET stage = 'ready'
 WHERE seq IN (SELECT seq FROM task INDEXED BY task_parked WHERE stage = 'parked' AND name = :name)

-- name: claims.any_idle_parked
-- Check whether a parked task waits for a concurrency key that no run holds.
SELECT 1 FROM task p INDEXED BY task_parked
 WHERE p.stage = 'parked'
   AND NOT EXISTS (SELECT 1 FROM task k INDEXED BY task_key_running
                    WHERE k.status = 'running' AND k.concurrency_key IS NOT NULL
                      AND k.name = p.name AND k.concurrency_key = p.concurrency_key)
 LIMIT 1

-- name: claims.unpark_idle
-- Safety net: make parked tasks ready whose concurrency key no run holds.
UPDATE task SET stage = 'ready'
 WHERE seq IN (
    SELECT p.seq FROM task p INDEXED BY task_parked
     WHERE p.stage = 'parked'
       AND NOT EXISTS (SELECT 1 FROM task k INDEXED BY task_key_running
                        WHERE k.status = 'running' AND k.concurrency_key IS NOT NULL
                          AND k.name = p.name AND k.concurrency_key = p.concurrency_key)
     LIMIT 1000)

-- name: claims.next_due
-- Read when the next delayed task is due.
SELECT min(run_after) FROM task INDEXED BY task_delayed WHERE stage = 'delayed'

-- name: claims.count_delayed
-- Count tasks that are not due yet, from their index.
SELECT count(*) FROM task INDEXED BY task_delayed WHERE stage = 'delayed'
