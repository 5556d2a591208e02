-- uses: base, fields, state
-- flags: no-writes
-- running_by_key: list the running tasks of request.name that share the concurrency key request.key: {seq, id}, ...

local found = {}
for _, id in ipairs(call('SMEMBERS', P .. 'queue:key:' .. request.name .. '/' .. request.key)) do
  local state = read_state(id)
  if state and state[STATUS] == 'running' then
    found[#found + 1] = { whole(state[SEQ]), id }
  end
end
return found
