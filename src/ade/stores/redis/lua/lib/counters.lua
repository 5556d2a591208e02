-- Counters that every commit updates, so that reading them never counts tasks: tasks by queue, name, and status; unfinished tasks
-- by queue; running tasks by name. While rebuild_counters.lua counts from scratch, the tasks it has passed are also counted there.
local tallies, depths, runs = {}, {}, {}
local passed, recounted = tonumber(string.match(call('GET', P .. 'recount') or '', '^%d+')), {}

local function count_in(queue, name, status, by)
  local lane = queue .. ':' .. name .. ':' .. status
  tallies[lane] = (tallies[lane] or 0) + by
  if not FINAL[status] then
    depths[queue] = (depths[queue] or 0) + by
  end
  if status == 'running' then
    runs[name] = (runs[name] or 0) + by
  end
  return lane
end

local function count(state, by)
  local lane = count_in(state[QUEUE], state[NAME], state[STATUS], by)
  if passed and state[SEQ] <= passed then
    recounted[lane] = (recounted[lane] or 0) + by
  end
end

local function move_counters(key, moves)
  for field, by in pairs(moves) do
    if by ~= 0 and call('HINCRBY', key, field, by) == 0 then
      call('HDEL', key, field)
    end
  end
end

local function flush_counts()
  move_counters(P .. 'tally', tallies)
  move_counters(P .. 'queue:depth', depths)
  move_counters(P .. 'queue:running', runs)
  move_counters(P .. 'recount:tally', recounted)
end
