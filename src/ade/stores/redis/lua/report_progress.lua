-- uses: base, fields, state
-- flags: allow-oom
-- report_progress: store the newest progress of a run. request.id, request.run_id, request.progress (JSON). Returns 1, or 0 when
--   the run no longer holds the task.

local state = read_state(request.id)
if not state or state[STATUS] ~= 'running' or state[RUN_ID] ~= request.run_id then
  return 0
end
call('HSET', task_key(request.id), 'progress', request.progress)
return 1
