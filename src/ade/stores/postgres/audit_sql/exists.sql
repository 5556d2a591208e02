-- Whether the table is there, in any schema of the search path.
SELECT to_regclass('ade_audit') IS NOT NULL
