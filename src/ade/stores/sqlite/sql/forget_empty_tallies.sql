-- Lanes without a task leave no counter behind.
DELETE FROM tally WHERE count = 0
