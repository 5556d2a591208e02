-- What must hold at every moment. Each statement returns a sentence for each violation, and a few at most.

-- name: attempts_within_bounds
-- No task has more attempts than its maximum.
SELECT 'task ' || id || ' has attempt ' || attempt || ' of ' || most
  FROM (SELECT t.id, t.attempt,
               iif(json_valid(d.detail), coalesce(d.detail ->> '$.max_attempts', 3), t.attempt) AS most
          FROM task t JOIN task_detail d ON d.seq = t.seq)
 WHERE attempt > most LIMIT 5

-- name: counters_match_records
-- The counters match the records.
SELECT 'tally of ' || coalesce(c.queue, r.queue) || ' ' || coalesce(c.name, r.name) || ' '
       || coalesce(c.status, r.status) || ' is ' || coalesce(c.count, 0) || ', records are ' || coalesce(r.count, 0)
  FROM (SELECT * FROM tally WHERE count <> 0) AS c
  FULL JOIN (SELECT queue, name, status, count(*) AS count FROM task GROUP BY 1, 2, 3) AS r
    ON c.queue = r.queue AND c.name = r.name AND c.status = r.status
 WHERE c.count IS NOT r.count LIMIT 5

-- name: every_document_is_whole
-- The body of every document is valid JSON.
SELECT 'the ' || kind || ' ' || id || ' cannot be read' FROM document WHERE NOT json_valid(body) LIMIT 5

-- name: every_inbox_is_whole
-- Every inbox has as many items as its head states, and every item belongs to an existing inbox.
SELECT 'inbox ' || id || ' has ' || items || ' items in its head, but ' || found || ' items exist'
  FROM (SELECT id, items, (SELECT count(*) FROM inbox_item WHERE inbox_id = inbox.id) AS found FROM inbox)
 WHERE items <> found
UNION ALL
SELECT 'inbox ' || id || ' cannot be read' FROM inbox WHERE NOT json_valid(head) OR NOT json_valid(writes)
UNION ALL
SELECT 'item ' || seq || ' of inbox ' || inbox_id || ' cannot be read' FROM inbox_item WHERE NOT json_valid(item)
UNION ALL
SELECT 'item ' || seq || ' is in inbox ' || inbox_id || ', which does not exist' FROM inbox_item
 WHERE inbox_id NOT IN (SELECT id FROM inbox)
 LIMIT 5

-- name: every_label_has_its_task
-- Every label belongs to an existing task.
SELECT 'label ' || label || ' names task ' || seq || ', which does not exist' FROM task_label
 WHERE seq NOT IN (SELECT seq FROM task) LIMIT 5

-- name: every_record_is_whole
-- Every task has a detail that is valid JSON.
SELECT 'task ' || t.id || ' has no detail that can be read' FROM task t
 WHERE NOT EXISTS (SELECT 1 FROM task_detail d WHERE d.seq = t.seq AND json_valid(d.detail)) LIMIT 5

-- name: every_unit_has_its_agent
-- Every capacity lease belongs to an existing agent.
SELECT holder || ' has a unit of agent ' || agent_id || ', which does not exist' FROM agent_lease
 WHERE agent_id NOT IN (SELECT id FROM agent) LIMIT 5

-- name: final_tasks_have_an_end
-- A task has an end time if and only if it is final.
SELECT 'task ' || id || ' is ' || status || ' with finished_at ' || json_quote(finished_at) FROM task
 WHERE (finished_at IS NOT NULL) <> (status IN ('completed', 'failed', 'rejected', 'cancelled')) LIMIT 5

-- name: dependencies_can_complete
-- A task waits only for tasks that can still complete, or its dependency is marked as broken.
SELECT 'task ' || w.id || ' waits for ' || coalesce(o.id || ', which is ' || o.status, 'a task that no longer exists')
  FROM dependency d JOIN task w ON w.seq = d.task_seq LEFT JOIN task o ON o.seq = d.on_seq
 WHERE o.seq IS NULL OR o.seq = w.seq OR o.status = 'completed'
    OR d.broken <> (o.status IN ('failed', 'rejected', 'cancelled')) OR (d.broken AND d.tolerant) LIMIT 5

-- name: one_final_event
-- A task has at most one final event for each generation.
SELECT 'task ' || task_id || ' has ' || ends || ' final events in ' || lives || ' generation(s)'
  FROM (SELECT task_id,
               sum(type IN ('task.succeeded', 'task.failed', 'task.cancelled', 'task.rejected')) AS ends,
               1 + sum(type = 'task.replayed') AS lives
          FROM event WHERE task_seq IS NOT NULL GROUP BY task_seq)
 WHERE ends > lives LIMIT 5

-- name: one_lease_per_run
-- A run holds at most one task.
SELECT 'run ' || run_id || ' holds ' || count(*) || ' tasks' FROM task
 WHERE status = 'running' GROUP BY run_id HAVING count(*) > 1 LIMIT 5

-- name: ready_tasks_can_start
-- A ready task waits for no other task; a blocked one does.
SELECT 'task ' || id || ' is ' || stage || ' and waits for ' || waiting_on FROM task
 WHERE (stage = 'blocked') <> (waiting_on > 0) AND stage IS NOT NULL LIMIT 5

-- name: statuses_are_known
-- Every status and stage is a known one. Checked here, because a CHECK constraint costs a third of every write.
SELECT 'task ' || id || ' has status ' || status || ' and stage ' || json_quote(stage) FROM task
 WHERE status NOT IN ('draft', 'submitted', 'reviewing', 'approved', 'pending', 'running', 'stalled', 'completed',
                      'failed', 'rejected', 'cancelled')
    OR stage NOT IN ('ready', 'delayed', 'blocked', 'parked') LIMIT 5

-- name: status_matches_log
-- The status of a task matches its last event.
SELECT 'task ' || t.id || ' is ' || t.status || ', but its last event is ' || e.type
  FROM task t
  JOIN event e ON e.seq = (SELECT max(l.seq) FROM event l WHERE l.task_seq = t.seq
                              AND l.type NOT IN ('alert', 'task.reclaimed', 'task.dlq', 'task.discarded')
                              AND l.type NOT GLOB 'lock.*')
 WHERE t.status <> CASE e.type
         WHEN 'task.created' THEN e.payload ->> '$.status'
         WHEN 'task.claimed' THEN 'running' WHEN 'task.succeeded' THEN 'completed'
         WHEN 'task.retry_scheduled' THEN 'pending' WHEN 'task.released' THEN 'pending'
         WHEN 'task.deferred' THEN 'pending' WHEN 'task.recalled' THEN 'pending'
         WHEN 'task.rescheduled' THEN 'pending'
         WHEN 'task.replayed' THEN iif(t.status = 'submitted', 'submitted', 'pending')  -- submitted if it is governed
         WHEN 'task.queued' THEN 'pending'
         WHEN 'task.stalled' THEN 'stalled' WHEN 'task.failed' THEN 'failed'
         WHEN 'task.cancelled' THEN 'cancelled' WHEN 'task.rejected' THEN 'rejected'
         ELSE t.status END LIMIT 5

-- name: waiting_counts_match_edges
-- A task waits for as many tasks as it has dependencies.
SELECT 'task ' || t.id || ' waits for ' || t.waiting_on || ', edges are ' || count(d.on_seq)
  FROM task t LEFT JOIN dependency d ON d.task_seq = t.seq
 GROUP BY t.seq HAVING count(d.on_seq) <> t.waiting_on LIMIT 5
