-- uses: base, fields, state
-- flags: no-writes
-- is_run_live: check whether request.run_id holds the task request.id. Returns 1 or 0.

local state = read_state(request.id)
return state and state[STATUS] == 'running' and state[RUN_ID] == request.run_id and 1 or 0
