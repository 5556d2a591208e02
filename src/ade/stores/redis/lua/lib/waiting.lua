-- How many entries of a stream of tasks wait for a worker: those the group was not given yet.
-- Delivered entries are few: only running tasks have them.
local function waiting_in(stream)
  local length = call('XLEN', stream)
  for _, group in ipairs(length > 0 and call('XINFO', 'GROUPS', stream) or {}) do
    local facts = {}
    for place = 1, #group, 2 do
      facts[group[place]] = group[place + 1]
    end
    if facts['name'] == GROUP then
      return length - #call('XRANGE', stream, '-', facts['last-delivered-id'])
    end
  end
  return length
end
