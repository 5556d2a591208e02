-- uses: base
-- flags: no-writes
-- read_counters: return {queue, packed {paused, max_depth}, ...} as configured and {queue:name:status, count, ...} of all tasks,
--   in one step.

return { call('HGETALL', P .. 'queues'), call('HGETALL', P .. 'tally') }
