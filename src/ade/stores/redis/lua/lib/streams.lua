-- The streams of tasks, and the runs that were delivered by them: what ends with a call ends together.
local out_of_stream = {} -- stream -> entries that end with this call

local function stream_key(queue, priority)
  return STREAM .. queue .. ':' .. priority
end

local function strike(stream, entry)
  local entries = out_of_stream[stream]
  if not entries then
    entries = {}
    out_of_stream[stream] = entries
  end
  entries[#entries + 1] = entry
end

-- What the server knows of the group of the workers; nil when it is lost.
local function group_of(stream)
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  for _, group in ipairs(groups.err and {} or groups) do
    local facts = {}
    for place = 1, #group, 2 do
      facts[group[place]] = group[place + 1]
    end
    if facts['name'] == GROUP then
      return facts
    end
  end
end

-- Each XDEL looks through up to a hundred neighbours of its entry. Nearly always nothing is left before the entries that end
-- with a call: then one XTRIM removes them all. That is known when the stream holds nothing but them, what waits and what is
-- pending for a run. Answers the entries that are left to be deleted one by one.
local FEW = 8

local function trim_before_runs(stream, entries)
  local queue, priority = string.match(stream, ':([^:]*):(%d)$')
  if #entries < FEW or not queue or stream ~= stream_key(queue, priority) then
    return entries
  end
  local group = group_of(stream)
  local waiting = tonumber(call('HGET', P .. 'queue:levels', priority .. ':' .. queue) or '0')
  if not group or call('XLEN', stream) ~= #entries + group.pending + waiting then
    return entries
  end
  local first = group.pending > 0 and call('XPENDING', stream, GROUP, '-', '+', 1)[1][1]
  local bound, last, left = first or group['last-delivered-id'], '', {}
  for _, entry in ipairs(entries) do
    if #entry ~= 18 or #bound ~= 18 or entry > bound then -- ids of one length are in the order of texts
      left[#left + 1] = entry
    elseif entry > last then
      last = entry
    end
  end
  if last ~= '' then
    call('XTRIM', stream, 'MINID', whole(tonumber(string.sub(last, 1, 16)) + 1) .. '-0')
  end
  return left
end

local function close_streams(may_trim)
  for stream, entries in pairs(out_of_stream) do
    local acknowledged = 0
    for from = 1, #entries, 1000 do -- a lost group is made anew by the next claim
      local answer = redis.pcall('XACK', stream, GROUP, unpack(entries, from, math.min(from + 999, #entries)))
      acknowledged = acknowledged + (type(answer) == 'number' and answer or 0)
    end
    local left = may_trim and acknowledged == #entries and trim_before_runs(stream, entries) or entries
    for from = 1, #left, 1000 do -- what another program has put there is not ours to end
      redis.pcall('XDEL', stream, unpack(left, from, math.min(from + 999, #left)))
    end
  end
end

local released = {} -- ids whose lease ends with this call

local function close_runs()
  in_portions('ZREM', P .. 'queue:leases', released)
  in_portions('HDEL', P .. 'queue:handed', released)
end
