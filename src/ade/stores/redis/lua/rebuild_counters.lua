-- uses: base, fields, state
-- flags: allow-oom
-- rebuild_counters: count all tasks from scratch, portion by portion in the order of their age, while work continues.
--   lib/counters.lua also updates the new counts for tasks that the recount has passed, so that they are exact at the end.
-- request.token (of the recount), request.after (seq up to which it has counted, 0 to begin), request.limit, request.repair.
-- Returns {'going', seq}, {'stopped'} when another recount began or this one was too slow, or {'counted', faults}: sentences
--   about wrong counters; with request.repair they are corrected.

local UNDER_WAY, COUNTED = P .. 'recount', P .. 'recount:tally'
local PATIENCE_MS = 60000

local function come_so_far()
  if request.after == 0 then
    call('DEL', COUNTED)
    return 0
  end
  local so_far, token = string.match(call('GET', UNDER_WAY) or '', '^(%d+) (.*)$')
  return token == request.token and tonumber(so_far)
end

local so_far = come_so_far()
if not so_far then
  return { 'stopped' }
elseif so_far > request.after then
  return { 'going', whole(so_far) } -- repeated: this portion was counted, and its answer lost
end

local portion = call('ZRANGEBYSCORE', P .. 'task:all', '(' .. whole(so_far), '+inf', 'LIMIT', 0, request.limit)
local moves = {}
for _, id in ipairs(portion) do
  local ok, state = pcall(read_state, id)
  if ok and type(state) == 'table' and type(state[SEQ]) == 'number' then
    so_far = math.max(so_far, state[SEQ])
    local lane = state[QUEUE] .. ':' .. state[NAME] .. ':' .. state[STATUS]
    moves[lane] = (moves[lane] or 0) + 1
  else
    so_far = math.max(so_far, tonumber(call('ZSCORE', P .. 'task:all', id)))
  end
end
for lane, by in pairs(moves) do
  call('HINCRBY', COUNTED, lane, by)
end
if #portion == request.limit then
  call('SET', UNDER_WAY, whole(so_far) .. ' ' .. request.token, 'PX', PATIENCE_MS)
  call('PEXPIRE', COUNTED, PATIENCE_MS)
  return { 'going', whole(so_far) }
end

-- All tasks are counted now.
local faults = {}

local function compare(key, right)
  local flat = call('HGETALL', key)
  local known, wrong = {}, false
  for place = 1, #flat, 2 do
    known[flat[place]] = tonumber(flat[place + 1])
    right[flat[place]] = right[flat[place]] or 0
  end
  for field, number in pairs(right) do
    if (known[field] or 0) ~= number then
      wrong = true
      faults[#faults + 1] = string.sub(key, #P + 1) .. ' of ' .. field .. ' is ' .. (known[field] or 0) .. ', records are ' .. number
    end
  end
  if wrong and request.repair then
    call('DEL', key)
    for field, number in pairs(right) do
      if number ~= 0 then
        call('HSET', key, field, number)
      end
    end
  end
end

local tallies, depths, runs = {}, {}, {}
local flat = call('HGETALL', COUNTED)
for place = 1, #flat, 2 do
  local queue, name, status = string.match(flat[place], '^([^:]*):(.*):([^:]*)$')
  local number = tonumber(flat[place + 1])
  tallies[flat[place]] = number
  if not FINAL[status] then
    depths[queue] = (depths[queue] or 0) + number
  end
  if status == 'running' then
    runs[name] = (runs[name] or 0) + number
  end
end
compare(P .. 'tally', tallies)
compare(P .. 'queue:depth', depths)
compare(P .. 'queue:running', runs)
call('DEL', UNDER_WAY, COUNTED)
return { 'counted', faults }
