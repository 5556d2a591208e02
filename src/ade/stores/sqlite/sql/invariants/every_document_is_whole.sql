-- The body of every document is JSON.
SELECT 'the ' || kind || ' ' || id || ' cannot be read' FROM document WHERE NOT json_valid(body) LIMIT 5
