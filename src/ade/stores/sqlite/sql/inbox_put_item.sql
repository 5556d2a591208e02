-- Put an item into an inbox.
INSERT INTO inbox_item (inbox_id, seq, item) VALUES (:inbox_id, :seq, :item)
