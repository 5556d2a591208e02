-- The numbers of all items of an inbox, in their order.
SELECT seq FROM inbox_item WHERE inbox_id = :id ORDER BY seq
