-- Tasks may ask for capabilities, and stand in lines with those that ask for the same. A worker has request.capabilities, or none:
-- then it never looks at such lines.
local can = {}
for _, capability in ipairs(request.capabilities or {}) do
  can[capability] = true
end

-- Whether the worker has all that is asked for.
local function has_all(needs)
  for need in string.gmatch(needs or '', '[^,]+') do
    if not can[need] then
      return false
    end
  end
  return true
end

-- The lines with something for this worker: {lane, name, the set it is in}, ...
local function served_lines()
  local found = {}
  for _, lanes in ipairs({ P .. 'queue:lines', next(can) and P .. 'queue:asking' }) do
    for _, lane in ipairs(call('SMEMBERS', lanes)) do
      local queue, name, needs = string.match(lane, '^([^:]*):([^+]*)%+?(.*)$')
      if serves[name] and is_open(queue) and has_all(needs) then
        found[#found + 1] = { lane, name, lanes }
      end
    end
  end
  return found
end
