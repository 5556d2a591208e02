-- Task records. `task` has the columns that claims, leases, and sweeps use; `task_detail` has the arguments and
-- options; `task_outcome` has result, error, and progress. The view `record` joins them into one JSON object for each
-- task.

-- name: tasks.enqueue_state
-- Read everything an enqueue depends on, as one JSON array of three: the seq of the next task; the queues with an
-- admission limit, as [queue, limit, unfinished tasks]; and the ids that exist, as [id, seq, status]. :queues and :ids
-- are JSON arrays; :usual is the limit of queues that have none of their own, or NULL.
SELECT json_array(
    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'task'), 0) + 1,
    json((SELECT json_group_array(json_array(n.value, coalesce(q.max_depth, :usual),
                     coalesce((SELECT sum(count) FROM tally
                                WHERE queue = n.value
                                  AND status NOT IN ('completed', 'failed', 'rejected', 'cancelled')), 0)))
            FROM json_each(:queues) AS n
            LEFT JOIN queue q ON q.name = n.value
           WHERE coalesce(q.max_depth, :usual) IS NOT NULL)),
    json((SELECT json_group_array(json_array(t.id, t.seq, t.status))
            FROM json_each(:ids) AS i
            JOIN task t ON t.id = i.value)))

-- name: tasks.insert
-- Insert the narrow part of new tasks. :rows is a JSON array of arrays, see codec.new_row.
INSERT INTO task (seq, id, queue, name, status, stage, priority, run_after, deadline, waiting_on, created_at,
                  updated_at, parent_id, idempotency_key, args_digest, concurrency_key)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
       value ->> 8, value ->> 9, value ->> 10, value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14
  FROM jsonb_each(:rows)

-- name: tasks.set_needs
-- Set the capabilities that new tasks require. Few tasks require any, so the insert does not carry them. :rows is a
-- JSON array of [seq, needs].
UPDATE task SET needs = c.value ->> 1
  FROM jsonb_each(:rows) AS c
 WHERE task.seq = c.value ->> 0

-- name: tasks.insert_detail
-- Insert the wide part of new tasks. :rows is a JSON array of [seq, detail].
INSERT INTO task_detail (seq, detail)
SELECT value ->> 0, value -> 1 FROM jsonb_each(:rows)

-- name: tasks.insert_labels
-- Index tasks by author, tag, resource, team, and ticket. :rows is a JSON array of [label, seq].
INSERT INTO task_label (label, seq) SELECT value ->> 0, value ->> 1 FROM jsonb_each(:rows)

-- name: tasks.existing_ids
-- List which of these ids exist, with seq and status. :ids is a JSON array.
SELECT t.id, t.seq, t.status FROM json_each(:ids) AS i JOIN task t ON t.id = i.value

-- name: tasks.existing_keys
-- List the tasks that have one of these idempotency keys. :rows is a JSON array of [queue, name, key].
SELECT t.seq, CAST(r.json AS BLOB)
  FROM jsonb_each(:rows) AS k
  JOIN task t ON t.idempotency_key IS NOT NULL AND t.queue = k.value ->> 0 AND t.name = k.value ->> 1
             AND t.idempotency_key = k.value ->> 2
  JOIN record r ON r.seq = t.seq

-- name: tasks.get_by_id
-- Get whole records by id. :ids is a JSON array.
SELECT t.seq, CAST(r.json AS BLOB)
  FROM json_each(:ids) AS i JOIN task t ON t.id = i.value JOIN record r ON r.seq = t.seq

-- name: tasks.get_by_seq
-- Get whole records as one JSON array, in the order of the seqs: one decode instead of one for each record. :seqs is a
-- JSON array.
SELECT CAST('[' || coalesce(group_concat(json, ',' ORDER BY key), '') || ']' AS BLOB)
  FROM (SELECT s.key, r.json FROM json_each(:seqs) AS s JOIN record r ON r.seq = s.value)

-- name: tasks.get_rows
-- Get records as separate rows, to find the one that cannot be decoded. :seqs is a JSON array.
SELECT r.seq, CAST(r.json AS BLOB) FROM json_each(:seqs) AS s JOIN record r ON r.seq = s.value

-- name: tasks.get_damaged
-- Get the readable part of a task whose detail or outcome cannot be decoded.
SELECT json_object(
           'id', id, 'queue', queue, 'name', name, 'status', status, 'priority', priority, 'run_after', run_after,
           'deadline', deadline, 'version', version, 'generation', generation, 'attempt', attempt, 'run_id', run_id,
           'worker_id', worker_id, 'lease_until', lease_until, 'waiting_on', waiting_on, 'created_at', created_at,
           'updated_at', updated_at, 'started_at', started_at, 'finished_at', finished_at, 'parent_id', parent_id,
           'idempotency_key', idempotency_key, 'args_digest', args_digest, 'concurrency_key', concurrency_key,
           'needs', iif(needs IS NULL, json_array(), json('["' || replace(needs, ',', '","') || '"]')))
  FROM task WHERE seq = :seq

-- name: tasks.quarantine
-- Keep a copy of a record that cannot be decoded, for an operator to inspect.
INSERT OR REPLACE INTO quarantine (task_id, detail, outcome, at)
SELECT t.id, d.detail, o.outcome, :now
  FROM task t LEFT JOIN task_detail d ON d.seq = t.seq LEFT JOIN task_outcome o ON o.seq = t.seq
 WHERE t.seq = :seq

-- name: tasks.replace_detail
-- Replace a detail that cannot be decoded with an empty one.
INSERT OR REPLACE INTO task_detail (seq, detail) VALUES (:seq, :detail)

-- name: tasks.find
-- List one page of tasks, starting after :start. task_reader.py fills in the index to walk, the conditions, and the
-- direction.
SELECT t.seq, CAST(r.json AS BLOB)
  FROM {index}
  JOIN record r ON r.seq = t.seq
 WHERE {conditions}
   AND {seq} {beyond} :start{window}
 ORDER BY {seq} {order}
 LIMIT :limit

-- name: tasks.end_of_window
-- Return the last of the next :window tasks of an index after :start, or nothing if there are fewer. task_reader.py
-- fills in the index to walk, its condition, and the direction.
SELECT {seq}
  FROM {index}
 WHERE {leads}
   AND {seq} {beyond} :start
 ORDER BY {seq} {order}
 LIMIT 1 OFFSET :window - 1

-- name: tasks.check_guards
-- Read the current columns of tasks and whether each guard holds. :rows is a JSON array of [id, version, run_id,
-- lease_until]; a guard that is NULL always holds. A run whose lease expired still holds its task until another worker
-- claims it. Returns one JSON array, in the given order.
SELECT json_group_array(json_array(
           t.seq, t.status, t.run_id, t.waiting_on,
           t.seq IS NOT NULL
           AND (c.value ->> 1 IS NULL OR t.version = c.value ->> 1)
           AND (c.value ->> 2 IS NULL OR (t.status IN ('running', 'stalled') AND t.run_id = c.value ->> 2))
           AND (c.value ->> 3 IS NULL OR t.lease_until IS c.value ->> 3)) ORDER BY c.key)
  FROM jsonb_each(:rows) AS c
  LEFT JOIN task t ON t.id = c.value ->> 0

-- name: tasks.update
-- Write the narrow part of decided changes. The same transaction has checked the guards. See codec.changed_row.
UPDATE task
   SET version = version + 1,
       status = c.value ->> 1, stage = c.value ->> 2, priority = c.value ->> 3, run_after = c.value ->> 4,
       deadline = c.value ->> 5, generation = c.value ->> 6, attempt = c.value ->> 7, run_id = c.value ->> 8,
       worker_id = c.value ->> 9, lease_until = c.value ->> 10, updated_at = c.value ->> 11,
       started_at = c.value ->> 12, finished_at = c.value ->> 13, discarded = c.value ->> 14
  FROM jsonb_each(:rows) AS c
 WHERE task.seq = c.value ->> 0

-- name: tasks.update_detail
-- Write the wide part of decided changes. :rows is a JSON array of [seq, detail].
UPDATE task_detail SET detail = c.value -> 1 FROM jsonb_each(:rows) AS c WHERE task_detail.seq = c.value ->> 0

-- name: tasks.update_identity
-- Write the fields of an edited draft that decide where it is queued. :rows is a JSON array, see codec.identity_row.
UPDATE task
   SET queue = c.value ->> 1, name = c.value ->> 2, parent_id = c.value ->> 3, idempotency_key = c.value ->> 4,
       args_digest = c.value ->> 5, concurrency_key = c.value ->> 6, needs = c.value ->> 7
  FROM jsonb_each(:rows) AS c
 WHERE task.seq = c.value ->> 0

-- name: tasks.finish_runs
-- Finish runs: check the guard and write the columns in one step. :rows is a JSON array of [id, run_id, status,
-- updated_at, finished_at]. Returns the runs that still held their task; the others are read again to report why they
-- did not.
UPDATE task
   SET version = version + 1, status = c.value ->> 2, stage = NULL, worker_id = NULL, lease_until = NULL,
       updated_at = c.value ->> 3, finished_at = c.value ->> 4
  FROM jsonb_each(:rows) AS c
 WHERE task.id = c.value ->> 0 AND task.status = 'running' AND task.run_id = c.value ->> 1
RETURNING id, seq, run_id, waiting_on

-- name: tasks.put_outcome
-- Write the outcomes of runs. :rows is a JSON array of [seq, outcome or null, expires_at].
INSERT INTO task_outcome (seq, outcome, expires_at)
SELECT value ->> 0, nullif(value -> 1, 'null'), value ->> 2 FROM jsonb_each(:rows) WHERE true
    ON CONFLICT (seq) DO UPDATE SET outcome = excluded.outcome, expires_at = excluded.expires_at

-- name: tasks.report_progress
-- Store the newest progress of a run, if the run still holds the task.
INSERT INTO task_outcome (seq, progress)
SELECT seq, :progress FROM task WHERE id = :id AND status = 'running' AND run_id = :run_id
    ON CONFLICT (seq) DO UPDATE SET progress = excluded.progress
RETURNING seq

-- name: tasks.bump_versions
-- Raise the version of tasks, so that decisions made on the earlier state are rejected. :seqs is a JSON array.
UPDATE task SET version = version + 1 WHERE seq IN (SELECT value FROM json_each(:seqs))

-- name: tasks.count_finished_since
-- Count the tasks of a queue that finished since a point in time, up to 1000.
SELECT count(*) FROM (
    SELECT 1 FROM task INDEXED BY task_finished WHERE finished_at >= :since AND queue = :queue LIMIT 1000)

-- name: tasks.list_finished_before
-- List final tasks that finished before :moment, oldest first. Dead letters that are not discarded are listed only if
-- they finished before :letters, and governed tasks only if they finished before :governed. Those stay in the index for
-- long, so their detail is searched for a review before it is parsed.
SELECT t.seq, CAST(r.json AS BLOB)
  FROM task t INDEXED BY task_finished
  JOIN task_detail d ON d.seq = t.seq
  JOIN record r ON r.seq = t.seq
 WHERE t.finished_at IS NOT NULL AND t.finished_at < :moment
   AND t.status IN ('completed', 'failed', 'rejected', 'cancelled')
   AND (t.status <> 'failed' OR t.finished_at < :letters OR t.discarded)
   AND (t.finished_at < :governed
        OR CASE WHEN instr(d.detail, '"review":') = 0 OR NOT json_valid(d.detail) THEN true
                ELSE coalesce(d.detail -> '$.review.gates', d.detail -> '$.review.policies',
                              d.detail -> '$.review.required', d.detail -> '$.review.has_preview') IS NULL END)
 ORDER BY t.finished_at LIMIT :limit

-- name: tasks.list_expiring_blobs
-- List the tasks and the blob references of expired results that are stored outside the record.
SELECT t.id, o.outcome ->> '$.result."$blob"'
  FROM task_outcome o INDEXED BY outcome_expiry
  JOIN task t ON t.seq = o.seq
 WHERE o.expires_at IS NOT NULL AND o.expires_at <= :now AND json_valid(o.outcome)
 ORDER BY o.expires_at LIMIT :limit

-- name: tasks.expire_results
-- Delete expired results and mark their records with `result_expired`.
UPDATE task_outcome
   SET outcome = json_set(iif(json_valid(outcome), json_remove(outcome, '$.result'), '{}'),
                          '$.result_expired', json('true')),
       expires_at = NULL
 WHERE seq IN (SELECT seq FROM task_outcome INDEXED BY outcome_expiry
                WHERE expires_at IS NOT NULL AND expires_at <= :now ORDER BY expires_at LIMIT :limit)
RETURNING seq

-- name: tasks.prune
-- Delete final tasks that no other task depends on. :ids is a JSON array.
DELETE FROM task
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND status IN ('completed', 'failed', 'rejected', 'cancelled')
   AND NOT EXISTS (SELECT 1 FROM dependency d WHERE d.on_seq = task.seq)
RETURNING seq, id, queue, name, status

-- name: tasks.prune_detail
-- Delete the details of pruned tasks. :seqs is a JSON array.
DELETE FROM task_detail WHERE seq IN (SELECT value FROM json_each(:seqs))

-- name: tasks.prune_labels
-- Delete the labels of pruned tasks, or of tasks whose labels change. :seqs is a JSON array.
DELETE FROM task_label WHERE seq IN (SELECT value FROM json_each(:seqs))

-- name: tasks.prune_outcome
-- Delete the outcomes of pruned tasks. :seqs is a JSON array.
DELETE FROM task_outcome WHERE seq IN (SELECT value FROM json_each(:seqs))

-- name: tasks.prune_quarantine
-- Delete the quarantined copies of pruned tasks. :ids is a JSON array.
DELETE FROM quarantine WHERE task_id IN (SELECT value FROM json_each(:ids))
