-- Tasks that require capabilities are in lanes with tasks that require the same ones. A worker without request.capabilities never
-- reads such lanes.
local can = {}
for _, capability in ipairs(request.capabilities or {}) do
  can[capability] = true
end

-- Whether the worker has all required capabilities.
local function has_all(needs)
  for need in string.gmatch(needs or '', '[^,]+') do
    if not can[need] then
      return false
    end
  end
  return true
end

-- The lanes that this worker serves: {lane, name, the set that contains it}, ...
local function served_lanes()
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
