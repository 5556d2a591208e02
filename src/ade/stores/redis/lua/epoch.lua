-- uses: base, fields, state, log
-- flags: allow-oom
-- epoch: the life of this partition's data. Answers the epoch; without one a new life begins as request.fresh.
-- request.alert: packed event to enter in the log of the new life, or false when nothing was known of an earlier one, which is
--   request.earlier; its end is told once, whoever began the new life.
-- Ticks go on behind everything that is still there, so that no seq comes twice.

local function newest_tick()
  local tasks = call('ZRANGE', P .. 'task:all', -1, -1, 'WITHSCORES')
  local entry = call('XREVRANGE', P .. 'events', '+', '-', 'COUNT', 1)[1]
  local first = entry and tonumber(string.match(entry[1], '^%d+')) or 0
  local last = entry and first + told_in(entry[2][2]) * PARTITIONS or 0
  return math.max(tonumber(tasks[2] or '0'), last)
end

local epoch, earlier = call('HGET', KEYS[1], 'epoch'), request.earlier or ''
if not epoch then
  epoch = request.fresh
  call('HSET', KEYS[1], 'epoch', epoch)
  call('HSETNX', KEYS[1], 'partitions', PARTITIONS)
  BASE = math.max(BASE, newest_tick() + PARTITIONS)
  BASE = BASE + (PARTITION - BASE) % PARTITIONS
  BASE_TEXT = whole(BASE)
  call('HSET', KEYS[1], 'tick', whole(BASE))
end
if request.alert and call('HGET', KEYS[1], 'ended') ~= earlier then
  call('HSET', KEYS[1], 'ended', earlier)
  record({ [LOGGED] = '' }, { request.alert })
  close_log()
end
return epoch
