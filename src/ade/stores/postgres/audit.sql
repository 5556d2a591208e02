-- The audit copy on PostgreSQL. Rows are appended and never changed.

-- name: set_timeouts
-- For this transaction only: limit every wait, and let a commit return only after its data is on disk.
SELECT set_config('statement_timeout', %(statement_ms)s, true),
       set_config('lock_timeout', %(lock_ms)s, true),
       set_config('idle_in_transaction_session_timeout', %(statement_ms)s, true),
       set_config(
           'synchronous_commit',
           CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END,
           true
       )

-- name: exists
-- Check whether the table exists, in any schema of the search path. to_regclass() would read from a cache that might
-- miss a table that another process created while this transaction waited for the lock.
SELECT EXISTS (SELECT FROM pg_catalog.pg_class WHERE relname = 'ade_audit' AND pg_catalog.pg_table_is_visible(oid))

-- name: lock
-- Let one process append at a time, until the transaction ends. A table lock would require more rights than INSERT.
SELECT pg_advisory_xact_lock(1094993217, 1)

-- name: create
-- Create the table, and the triggers that reject changes.
CREATE TABLE ade_audit (
    seq  bigint PRIMARY KEY,
    body bytea NOT NULL,
    hash text NOT NULL
);
CREATE OR REPLACE FUNCTION ade_audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit copy is append-only';
END
$$;
CREATE TRIGGER entry_is_never_changed BEFORE UPDATE OR DELETE ON ade_audit
    FOR EACH ROW EXECUTE FUNCTION ade_audit_is_append_only();
CREATE TRIGGER entries_are_never_removed BEFORE TRUNCATE ON ade_audit
    FOR EACH STATEMENT EXECUTE FUNCTION ade_audit_is_append_only();

-- name: append
-- Append one entry to the chain.
INSERT INTO ade_audit (seq, body, hash) VALUES (%(seq)s, %(body)s, %(hash)s)

-- name: head
-- Read the last entry's seq and hash: the end of the chain.
SELECT seq, hash FROM ade_audit ORDER BY seq DESC LIMIT 1

-- name: read
-- Read entries after a seq, in order.
SELECT seq, body, hash FROM ade_audit WHERE seq > %(after)s ORDER BY seq LIMIT %(limit)s

-- name: list_newest
-- List the newest entries, newest first.
SELECT seq, body, hash FROM ade_audit ORDER BY seq DESC LIMIT %(limit)s

-- name: count
-- Count the entries of the chain.
SELECT count(*) FROM ade_audit
