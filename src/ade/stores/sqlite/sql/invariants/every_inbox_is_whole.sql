-- Every inbox has as many items as its head says, and nothing lies in an inbox that is not known.
SELECT 'inbox ' || id || ' has ' || items || ' items, but ' || found || ' are there'
  FROM (SELECT id, items, (SELECT count(*) FROM inbox_item WHERE inbox_id = inbox.id) AS found FROM inbox)
 WHERE items <> found
UNION ALL
SELECT 'inbox ' || id || ' cannot be read' FROM inbox WHERE NOT json_valid(head) OR NOT json_valid(writes)
UNION ALL
SELECT 'item ' || seq || ' of inbox ' || inbox_id || ' cannot be read' FROM inbox_item WHERE NOT json_valid(item)
UNION ALL
SELECT 'item ' || seq || ' lies in inbox ' || inbox_id || ', which is not known' FROM inbox_item
 WHERE inbox_id NOT IN (SELECT id FROM inbox)
 LIMIT 5
