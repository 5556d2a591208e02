-- How long the chain is.
SELECT count(*) FROM entry
