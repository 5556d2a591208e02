-- Events below a place in the log whose tasks are gone, never past any reader, oldest first. Their time is asked too:
-- a clock that was put back and forth leaves young events in front of old ones.
SELECT e.seq FROM event e
 WHERE e.seq < :boundary AND e.seq <= coalesce((SELECT min(seq) FROM cursor), 9223372036854775807) AND e.at < :before
   AND NOT EXISTS (SELECT 1 FROM task t WHERE t.seq = e.task_seq)
 ORDER BY e.seq LIMIT :limit
