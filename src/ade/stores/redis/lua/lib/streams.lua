-- The task streams, and the runs delivered from them. Entries and leases that end with a call are removed together.
local out_of_stream = {} -- stream -> entries to remove with this call

local function stream_key(queue, priority)
  return STREAM .. queue .. ':' .. priority
end

local function remove_entry(stream, entry)
  local entries = out_of_stream[stream]
  if not entries then
    entries = {}
    out_of_stream[stream] = entries
  end
  entries[#entries + 1] = entry
end

-- The server's information about the workers' consumer group; nil when it is lost.
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

-- Each XDEL scans up to a hundred neighbors of its entry. Usually no other entry precedes the removed ones: then one XTRIM removes
-- them all. That is certain when the stream contains only them, waiting entries, and pending entries. Returns the entries that must
-- be deleted one by one.
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
    if #entry ~= 18 or #bound ~= 18 or entry > bound then -- ids of the same length are ordered as text
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

local function flush_streams(may_trim)
  for stream, entries in pairs(out_of_stream) do
    local acknowledged = 0
    for from = 1, #entries, 1000 do -- the next claim creates a lost group again
      local answer = redis.pcall('XACK', stream, GROUP, unpack(entries, from, math.min(from + 999, #entries)))
      acknowledged = acknowledged + (type(answer) == 'number' and answer or 0)
    end
    local left = may_trim and acknowledged == #entries and trim_before_runs(stream, entries) or entries
    for from = 1, #left, 1000 do -- an error means that another program owns the key
      redis.pcall('XDEL', stream, unpack(left, from, math.min(from + 999, #left)))
    end
  end
end

local released = {} -- ids whose lease ends with this call

local function flush_runs()
  in_portions('ZREM', P .. 'queue:leases', released)
  in_portions('HDEL', P .. 'queue:handed', released)
end
