-- uses: base
-- flags: allow-oom
-- remove_consumers: remove workers from the consumer groups of the task streams. request.workers (ids). A consumer with pending
--   entries stays: they would be lost with it.

local function remove_from(stream)
  for _, worker in ipairs(request.workers) do
    local pending = redis.pcall('XPENDING', stream, GROUP, '-', '+', 1, worker)
    if not pending.err and #pending == 0 then
      call('XGROUP', 'DELCONSUMER', stream, GROUP, worker)
    end
  end
end

local queues = {}
for _, queue in ipairs(call('HKEYS', P .. 'queues')) do
  queues[queue] = true
end
for _, lane in ipairs(call('HKEYS', P .. 'tally')) do
  queues[string.match(lane, '^[^:]*')] = true
end
for queue in pairs(queues) do
  for priority = 0, 9 do
    local stream = STREAM .. queue .. ':' .. priority
    if call('EXISTS', stream) == 1 then
      remove_from(stream)
    end
  end
end
if call('EXISTS', P .. 'queue:back') == 1 then
  remove_from(P .. 'queue:back')
end
return 1
