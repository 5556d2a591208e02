-- Write the head of an inbox.
INSERT INTO inbox (id, version, consumer, items, since, held_until, written_at, writes, head)
VALUES (:id, :version, :consumer, :items, :since, :held_until, :written_at, :writes, :head)
    ON CONFLICT (id) DO UPDATE
   SET version = excluded.version, consumer = excluded.consumer, items = excluded.items, since = excluded.since,
       held_until = excluded.held_until, written_at = excluded.written_at, writes = excluded.writes, head = excluded.head
