-- How many wait in the longest of these lines, and how many requests the owner has. :resources is a JSON array.
SELECT coalesce(max(waiting), 0),
       (SELECT count(*) FROM lock_request WHERE namespace = :namespace AND owner = :owner)
  FROM (SELECT (SELECT count(*) FROM lock_item
                 WHERE namespace = :namespace AND resource = n.value AND granted = 0) AS waiting
          FROM json_each(:resources) AS n)
