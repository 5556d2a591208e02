-- uses: base
-- flags: allow-oom
-- register_worker: register a worker or record its heartbeat. request.worker (its id), request.text (JSON of the worker, without
--   the end of its heartbeat), request.ttl_ms, request.definitions: name, JSON, ... of its task names; request.names: task names
--   it registered before. Returns 1, or 0 when some of those are missing: the data was lost, and the worker must register again.

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
