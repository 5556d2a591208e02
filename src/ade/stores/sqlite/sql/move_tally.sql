-- Add to the counters. :rows is a JSON array of [queue, name, status, difference].
INSERT INTO tally (queue, name, status, count)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM jsonb_each(:rows) WHERE true
    ON CONFLICT (queue, name, status) DO UPDATE SET count = count + excluded.count
