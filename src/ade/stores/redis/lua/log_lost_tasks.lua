-- uses: base, fields, state, log
-- flags: allow-oom
-- log_lost_tasks: log tasks that no longer exist, each once. request.tasks: {id, packed event}, ... Returns the ids that were not
--   logged before.

local fresh = {}
local no_record = { [LOGGED] = '' } -- the task has no record that could name the entry
for _, gone in ipairs(request.tasks) do
  if call('EXISTS', task_key(gone[1])) == 0 and call('SADD', P .. 'gone', gone[1]) == 1 then
    fresh[#fresh + 1] = gone[1]
    append_task_events(no_record, { gone[2] })
  end
end
flush_log()
return fresh
