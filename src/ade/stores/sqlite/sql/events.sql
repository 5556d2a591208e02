-- The event log and the cursors of its readers. Claims and locks append their events with statements of their own.

-- name: events.insert
-- Append events. :rows is a JSON array of [type, at, task_seq, task_id, actor, payload].
INSERT INTO event (type, at, task_seq, task_id, actor, payload)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value -> 5 FROM jsonb_each(:rows)

-- name: events.read
-- Read events after a position in the log.
SELECT seq, type, at, task_id, actor, payload FROM event WHERE seq > :after ORDER BY seq LIMIT :limit

-- name: events.read_task
-- Read the events of one task after a position in the log.
SELECT e.seq, e.type, e.at, e.task_id, e.actor, e.payload
  FROM task t JOIN event e INDEXED BY event_task ON e.task_seq = t.seq
 WHERE t.id = :task_id AND e.task_seq IS NOT NULL AND e.seq > :after ORDER BY e.seq LIMIT :limit

-- name: events.list_newest
-- List the newest events, newest first.
SELECT seq, type, at, task_id, actor, payload FROM event ORDER BY seq DESC LIMIT :limit

-- name: events.first_from
-- Find the first event at or after a position in the log.
SELECT seq, at FROM event WHERE seq >= :seq ORDER BY seq LIMIT 1

-- name: events.last_seq
-- Read the seq of the newest event, even if it has been trimmed.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0)

-- name: events.list_old
-- List events below :boundary whose tasks no longer exist, oldest first, and none that a reader has still to read. The
-- time is compared too: when the clock was set back, recent events can precede old ones.
SELECT e.seq FROM event e
 WHERE e.seq < :boundary AND e.seq <= coalesce((SELECT min(seq) FROM cursor), 9223372036854775807) AND e.at < :before
   AND NOT EXISTS (SELECT 1 FROM task t WHERE t.seq = e.task_seq)
 ORDER BY e.seq LIMIT :limit

-- name: events.trim
-- Delete events. :seqs is a JSON array.
DELETE FROM event WHERE seq IN (SELECT value FROM json_each(:seqs)) RETURNING seq

-- name: events.list_cursors
-- List all cursors.
SELECT name, seq FROM cursor

-- name: events.advance_cursor
-- Advance a cursor. It never moves back.
INSERT INTO cursor (name, seq) VALUES (:name, :seq)
    ON CONFLICT (name) DO UPDATE SET seq = max(seq, excluded.seq)
