-- Rows come in and never change.
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
