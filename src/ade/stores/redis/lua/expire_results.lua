-- uses: base, fields, state, request_dedup
-- flags: allow-oom
-- expire_results: delete expired results. request.results: {id, expires_at as read, the outcome without its result}, ...;
--   request.token. Returns the ids whose result was deleted; a result that changed meanwhile is left alone.

local known = known_answer()
if known then
  return known
end
local gone = {}
for _, result in ipairs(request.results) do
  local id = result[1]
  local state = read_state(id)
  if state and state[EXPIRES] == result[2] then
    state[EXPIRES] = false
    call('HSET', task_key(id), 'state', cmsgpack.pack(state), 'outcome', result[3])
    gone[#gone + 1] = id
  end
  if not state or state[EXPIRES] ~= result[2] then
    call('ZREM', P .. 'task:results', id)
  end
end
return keep_answer(gone)
