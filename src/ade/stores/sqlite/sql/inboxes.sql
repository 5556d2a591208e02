-- Inboxes of conversations: a small head that every write replaces, and items that never change.

-- name: inboxes.get
-- Get the head of an inbox.
SELECT head FROM inbox WHERE id = :id

-- name: inboxes.get_version
-- Read the version of an inbox, and the ids of its newest writes as a JSON array.
SELECT version, writes FROM inbox WHERE id = :id

-- name: inboxes.list_items
-- List all items of an inbox, in order.
SELECT item FROM inbox_item WHERE inbox_id = :id ORDER BY seq

-- name: inboxes.list_seqs
-- List the seqs of all items of an inbox, in order.
SELECT seq FROM inbox_item WHERE inbox_id = :id ORDER BY seq

-- name: inboxes.list
-- List the heads of inboxes by id, with the number of items, the age of the oldest one, and the time of the last write.
SELECT head, items, since, written_at FROM inbox WHERE id > :after ORDER BY id LIMIT :limit

-- name: inboxes.list_ready
-- List the inboxes a consumer can read from now, as rows of since and id, the longest waiting first.
SELECT since, id FROM inbox
 WHERE consumer = :consumer AND since IS NOT NULL AND (held_until IS NULL OR held_until <= :steady)
 ORDER BY since, id LIMIT :limit

-- name: inboxes.put
-- Write the head of an inbox.
INSERT INTO inbox (id, version, consumer, items, since, held_until, written_at, writes, head)
VALUES (:id, :version, :consumer, :items, :since, :held_until, :written_at, :writes, :head)
    ON CONFLICT (id) DO UPDATE
   SET version = excluded.version, consumer = excluded.consumer, items = excluded.items, since = excluded.since,
       held_until = excluded.held_until, written_at = excluded.written_at, writes = excluded.writes, head = excluded.head

-- name: inboxes.put_item
-- Add an item to an inbox.
INSERT INTO inbox_item (inbox_id, seq, item) VALUES (:inbox_id, :seq, :item)

-- name: inboxes.delete_items
-- Delete items of an inbox. :seqs is a JSON array.
DELETE FROM inbox_item WHERE inbox_id = :inbox_id AND seq IN (SELECT value FROM json_each(:seqs))

-- name: inboxes.list_idle
-- List inboxes that are empty and were not written since :before, oldest first.
SELECT id FROM inbox WHERE since IS NULL AND written_at < :before ORDER BY written_at LIMIT :limit

-- name: inboxes.delete_idle
-- Delete inboxes that are still empty and were not written since :before. :ids is a JSON array.
DELETE FROM inbox WHERE id IN (SELECT value FROM json_each(:ids)) AND since IS NULL AND written_at < :before RETURNING id
