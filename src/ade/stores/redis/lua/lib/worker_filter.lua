-- The tasks that a worker serves: request.names in request.queues (empty: all) that are not paused.
local serves, wants = {}, nil
for _, name in ipairs(request.names) do
  serves[name] = true
end
if #request.queues > 0 then
  wants = {}
  for _, queue in ipairs(request.queues) do
    wants[queue] = true
  end
end
local is_closed = {}
local configured = call('HGETALL', P .. 'queues')
for place = 1, #configured, 2 do
  is_closed[configured[place]] = cmsgpack.unpack(configured[place + 1])[1]
end

local function is_open(queue)
  return not is_closed[queue] and (not wants or wants[queue])
end
