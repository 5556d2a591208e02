-- The head of an inbox.
SELECT head FROM inbox WHERE id = :id
