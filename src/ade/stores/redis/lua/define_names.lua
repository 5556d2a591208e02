-- uses: base, fields, state, streams, task_streams
-- flags: allow-oom
-- define_names: set the limits of task names that claims must respect. request.limits: {name, {concurrency, per key, rate count,
--   period} or false}, ... When limits change, tasks parked under the old ones become ready, and the next claim decides.

local freed = false
for _, limit in ipairs(request.limits) do
  local name, packed = limit[1], limit[2] and cmsgpack.pack(limit[2])
  if call('HGET', P .. 'limits', name) ~= (packed or false) then
    if packed then
      call('HSET', P .. 'limits', name, packed)
    else
      call('HDEL', P .. 'limits', name)
    end
    for _, parking in ipairs(call('SMEMBERS', P .. 'queue:parkings')) do
      if string.sub(parking, 1, #name + 1) == name .. '/' then
        freed = unpark(parking, true) or freed
      end
    end
  end
end
if freed then
  notify('work')
end
return 1
