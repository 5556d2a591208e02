-- Every status and stage is one of the table's. Asked here, because a CHECK of it costs a third of every write.
SELECT 'task ' || id || ' has status ' || status || ' and stage ' || json_quote(stage) FROM task
 WHERE status NOT IN ('draft', 'submitted', 'reviewing', 'approved', 'pending', 'running', 'stalled', 'completed',
                      'failed', 'rejected', 'cancelled')
    OR stage NOT IN ('ready', 'delayed', 'blocked', 'parked') LIMIT 5
