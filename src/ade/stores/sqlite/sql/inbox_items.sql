-- All items of an inbox, in their order.
SELECT item FROM inbox_item WHERE inbox_id = :id ORDER BY seq
