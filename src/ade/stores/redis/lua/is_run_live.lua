-- uses: base, fields, state
-- flags: no-writes
-- is_run_live: check whether a task is running under request.run_id. Returns 1 or 0.

for _, id in ipairs(call('ZRANGE', P .. 'queue:leases', 0, -1)) do
  local state = read_state(id)
  if state and state[STATUS] == 'running' and state[RUN_ID] == request.run_id then
    return 1
  end
end
return 0
