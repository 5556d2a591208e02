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
