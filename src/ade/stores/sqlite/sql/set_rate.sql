-- The state of a name's rate limit after a claim.
UPDATE definition SET rate_full_at = :full_at WHERE name = :name
