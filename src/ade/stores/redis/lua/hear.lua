-- uses: base
-- flags: allow-oom
-- hear: a worker makes itself known or is heard of again. request.worker (its id), request.text (JSON of the worker, without
--   the end of its heartbeat), request.ttl_ms, request.definitions: name, JSON, ... of the tasks it knows; request.names: of
--   tasks it has told of before. Answers 1, or 0 when some of those are not known: then the data was lost, and it tells again.

local ends = whole(STEADY + request.ttl_ms)
call('HSET', P .. 'workers', request.worker, string.sub(request.text, 1, -2) .. ',"heartbeat_until":' .. ends .. '}')
call('ZADD', P .. 'workers:heartbeat', ends, request.worker)
in_portions('HSET', P .. 'definitions', request.definitions)
for _, name in ipairs(request.names or {}) do
  if call('HEXISTS', P .. 'definitions', name) == 0 then
    return 0
  end
end
return 1
