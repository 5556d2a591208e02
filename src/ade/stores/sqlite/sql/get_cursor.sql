-- How far a reader has come.
SELECT seq FROM cursor WHERE name = :name
