-- uses: base, fields, state, log
-- flags: allow-oom
-- alert: tell of tasks that are gone, of each once. request.tasks: {id, packed event}, ... Answers the ids not told of before.

local fresh = {}
local nobody = { [LOGGED] = '' } -- events of a task without a record belong to no record
for _, gone in ipairs(request.tasks) do
  if call('EXISTS', task_key(gone[1])) == 0 and call('SADD', P .. 'gone', gone[1]) == 1 then
    fresh[#fresh + 1] = gone[1]
    record(nobody, { gone[2] })
  end
end
close_log()
return fresh
