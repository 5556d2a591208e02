-- Which of these ids exist, and where they stand. :ids is a JSON array.
SELECT t.id, t.seq, t.status FROM json_each(:ids) AS i JOIN task t ON t.id = i.value
