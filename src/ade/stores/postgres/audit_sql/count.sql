-- How long the chain is.
SELECT count(*) FROM ade_audit
