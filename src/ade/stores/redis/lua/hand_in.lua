-- uses: base, fields, state
-- flags: allow-oom
-- hand_in: a worker in another language reports how its run ended. ADE's next sweep decides and writes what follows; until then
--   the run keeps its task, even if the lease expires.
-- request.id, request.run_id, request.outcome: JSON as text, {"result": ...}, {"error": {"type", "message", ...},
--   "retry_after_ms": ...} or {"released": "why"}, of 1 MiB at most.
-- Returns 'taken' (also when the request is repeated: the first outcome counts), 'gone' (the task does not exist), or the status
--   of a task that this run no longer holds; without storing anything, 'too_large' or 'not_an_outcome'.

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
