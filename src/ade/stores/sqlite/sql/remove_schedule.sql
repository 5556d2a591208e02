-- Delete a schedule.
DELETE FROM schedule WHERE name = :name RETURNING name
