-- Whether the table is there, in any schema of the search path. to_regclass() would answer from a cache that may not
-- know yet what another copier made while this transaction waited for the lock.
SELECT EXISTS (SELECT FROM pg_catalog.pg_class WHERE relname = 'ade_audit' AND pg_catalog.pg_table_is_visible(oid))
