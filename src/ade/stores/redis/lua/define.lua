-- uses: base, fields, state, streams, places
-- flags: allow-oom
-- define: what claims must know of task names. request.limits: {name, {concurrency, per key, rate count, period} or false}, ...
-- When limits change, tasks parked under the old ones stand in line again and the next claim decides anew.

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
  ring('work')
end
return 1
