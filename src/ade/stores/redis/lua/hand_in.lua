-- uses: base, fields, state
-- flags: allow-oom
-- hand_in: a worker of another language says how its run ended. What follows from it is decided and written by ADE's next
--   sweep; until then the task stays this run's, whatever becomes of its lease.
-- request.id, request.run_id, request.outcome: JSON as text, {"result": ...}, {"error": {"type", "message", ...},
--   "retry_after_ms": ...} or {"released": "why"}, of 1 MiB at most.
-- Answers 'taken' (again when the request is repeated: the first outcome counts), 'gone' (no such task), the status of the
--   task, which is no longer this run's, or without keeping anything 'too_large' or 'not_an_outcome'.

local MOST_BYTES = 1048576

local state = read_state(request.id)
if not state then
  return 'gone'
elseif state[STATUS] ~= 'running' or state[RUN_ID] ~= request.run_id then
  return state[STATUS]
elseif type(request.outcome) ~= 'string' then
  return 'not_an_outcome'
elseif #request.outcome > MOST_BYTES then
  return 'too_large'
end
local is_json, outcome = pcall(cjson.decode, request.outcome)
if not is_json or type(outcome) ~= 'table' or not (outcome.result ~= nil or outcome.error or outcome.released) then
  return 'not_an_outcome'
end
local known = call('HGET', P .. 'queue:handed', request.id)
if not known or cmsgpack.unpack(known)[1] ~= request.run_id then
  call('HSET', P .. 'queue:handed', request.id, cmsgpack.pack({ request.run_id, request.outcome }))
end
return 'taken'
