-- Old events of tasks that are gone, never past any reader.
DELETE FROM event
 WHERE seq IN (SELECT e.seq FROM event e
                WHERE e.seq <= coalesce((SELECT min(seq) FROM cursor), 9223372036854775807) AND e.at < :before
                  AND NOT EXISTS (SELECT 1 FROM task t WHERE t.seq = e.task_seq)
                ORDER BY e.seq LIMIT :limit)
RETURNING seq
