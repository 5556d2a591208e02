-- Create or change a queue.
INSERT INTO queue (name, paused, max_depth) VALUES (:name, :paused, :max_depth)
    ON CONFLICT (name) DO UPDATE SET paused = excluded.paused, max_depth = excluded.max_depth
