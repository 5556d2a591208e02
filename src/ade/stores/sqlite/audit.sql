-- The audit copy, in a database file of its own. Rows are appended and never changed.

-- name: create
-- Create the table, and the triggers that reject changes.
CREATE TABLE IF NOT EXISTS entry (
    seq  INTEGER PRIMARY KEY,
    body BLOB NOT NULL,
    hash TEXT NOT NULL
);
CREATE TRIGGER IF NOT EXISTS entry_is_never_changed BEFORE UPDATE ON entry
BEGIN
    SELECT RAISE(ABORT, 'the audit copy is append-only');
END;
CREATE TRIGGER IF NOT EXISTS entry_is_never_removed BEFORE DELETE ON entry
BEGIN
    SELECT RAISE(ABORT, 'the audit copy is append-only');
END;

-- name: create_base
-- Create the table for the last entry that was rotated out of the file: the chain continues from its hash.
CREATE TABLE IF NOT EXISTS base (seq INTEGER NOT NULL, hash TEXT NOT NULL)

-- name: has_base
-- Read whether entries were ever rotated out of the file.
SELECT 1 FROM sqlite_schema WHERE name = 'base'

-- name: base
-- Read the last entry that was rotated out of the file.
SELECT seq, hash FROM base

-- name: set_base
-- Record the last entry that was rotated out of the file.
DELETE FROM base;
INSERT INTO base (seq, hash) VALUES (:seq, :hash)

-- name: rotate
-- Remove the entries up to a seq. The trigger that rejects this is absent only inside this transaction.
DROP TRIGGER entry_is_never_removed;
DELETE FROM entry WHERE seq <= :seq;
CREATE TRIGGER entry_is_never_removed BEFORE DELETE ON entry
BEGIN
    SELECT RAISE(ABORT, 'the audit copy is append-only');
END

-- name: append
-- Append one entry to the chain.
INSERT INTO entry (seq, body, hash) VALUES (:seq, :body, :hash)

-- name: head
-- Read the last entry's seq and hash: the end of the chain.
SELECT seq, hash FROM entry ORDER BY seq DESC LIMIT 1

-- name: read
-- Read entries after a seq, in order.
SELECT seq, body, hash FROM entry WHERE seq > :after ORDER BY seq LIMIT :limit

-- name: list_newest
-- List the newest entries, newest first.
SELECT seq, body, hash FROM entry ORDER BY seq DESC LIMIT :limit

-- name: count
-- Count the entries of the chain.
SELECT count(*) FROM entry
