-- uses: base
-- flags: allow-oom
-- check_due_indexes: check the indexes of due items: schedules, workers, and finished effects. request.effects: digests of
--   entries in the ledger; request.repair: add what is missing. Returns sentences about missing entries, which no sweep would
--   find.

local faults = {}

local function ensure(index, score, name)
  if not call('ZSCORE', P .. index, name) then
    faults[#faults + 1] = name .. ' is missing in ' .. index
    if request.repair then
      call('ZADD', P .. index, whole(score), name)
    end
  end
end

local function each_text(key, look)
  local flat = call('HGETALL', P .. key)
  for place = 1, #flat, 2 do
    local ok, facts = pcall(cjson.decode, flat[place + 1])
    if ok and type(facts) == 'table' then
      look(flat[place], facts)
    end
  end
end

each_text('schedules', function(name, schedule)
  if not schedule.paused then
    ensure('schedules:due', schedule.next_at or 0, name)
  end
end)
each_text('workers', function(id, worker)
  ensure('workers:heartbeat', worker.heartbeat_until or 0, id)
end)
for _, digest in ipairs(request.effects) do
  local done = call('HMGET', P .. 'effect:' .. digest, 'done', 'at')
  if done[1] == '1' then
    ensure('effects', tonumber(done[2] or '0'), digest)
  end
end
return faults
