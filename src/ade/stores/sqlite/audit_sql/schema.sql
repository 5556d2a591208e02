-- The audit copy lies in a file of its own. Rows come in and never change.
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
