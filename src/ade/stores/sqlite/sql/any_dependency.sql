-- Whether anything waits for anything.
SELECT EXISTS (SELECT 1 FROM dependency)
