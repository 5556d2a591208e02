-- What workers have registered so far.
SELECT definition FROM definition ORDER BY name
