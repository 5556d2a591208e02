-- uses: base, fields, state, log
-- flags: allow-oom
-- dataset_generation: return the generation of this partition's data. If there is none, a new generation starts as request.fresh,
--   with the schema version request.schema.
-- request.alert: packed event for the log of the new generation, or false when no earlier one was known; request.earlier: the
--   earlier generation. Its loss is logged once, whichever process started the new generation. Ticks continue after everything
--   that still exists, so that no seq is used twice.

local function newest_tick()
  local tasks = call('ZRANGE', P .. 'task:all', -1, -1, 'WITHSCORES')
  local entry = call('XREVRANGE', P .. 'events', '+', '-', 'COUNT', 1)[1]
  local first = entry and tonumber(string.match(entry[1], '^%d+')) or 0
  local last = entry and first + count_events_in(entry[2][2]) * PARTITIONS or 0
  return math.max(tonumber(tasks[2] or '0'), last)
end

local epoch, earlier = call('HGET', KEYS[1], 'epoch'), request.earlier or ''
if not epoch then
  epoch = request.fresh
  call('HSET', KEYS[1], 'epoch', epoch)
  call('HSETNX', KEYS[1], 'partitions', PARTITIONS)
  if request.schema then
    call('HSETNX', KEYS[1], 'schema', request.schema)
  end
  BASE = math.max(BASE, newest_tick() + PARTITIONS)
  BASE = BASE + (PARTITION - BASE) % PARTITIONS
  BASE_TEXT = whole(BASE)
  call('HSET', KEYS[1], 'tick', whole(BASE))
end
if request.alert and call('HGET', KEYS[1], 'ended') ~= earlier then
  call('HSET', KEYS[1], 'ended', earlier)
  append_task_events({ [LOGGED] = '' }, { request.alert })
  flush_log()
end
return epoch
