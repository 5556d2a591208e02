-- Inboxes: a hash for each, with its `head` (JSON), a summary in the field `stands`, and its items (JSON) by their seq.
-- The summary is packed {version, consumer or false, number of items, when the oldest was added or false, steady end of the batch
-- lease or false, when it was written}.
local ALL, HELD, EMPTY = P .. 'inbox:all', P .. 'inbox:held', P .. 'inbox:empty'
local UNUSED = { 0, false, 0, false, false, 0 }

local function inbox_key(id)
  return P .. 'inbox:record:' .. id
end

local function fed_key(consumer)
  return P .. 'inbox:fed:' .. consumer
end

-- The summary of an inbox; UNUSED when there is none. Fails when it cannot be read.
local function read_summary(id)
  local packed = call('HGET', inbox_key(id), 'stands')
  if not packed then
    return UNUSED
  end
  local can_be_read, summary = pcall(cmsgpack.unpack, packed)
  if not can_be_read or type(summary) ~= 'table' or type(summary[1]) ~= 'number' or type(summary[6]) ~= 'number' then
    error({ err = 'ERR the inbox ' .. id .. ' cannot be read' })
  end
  return summary
end

-- The score it must have in each index, or false where it must be absent.
local function scores_of(summary)
  local exists = summary[1] > 0
  return {
    [ALL] = exists and 0,
    [HELD] = summary[5],
    [EMPTY] = exists and summary[3] == 0 and summary[6],
  }
end

local function set_score(key, score, id)
  if score then
    call('ZADD', key, whole(score), id)
  else
    call('ZREM', key, id)
  end
end

-- Update the indexes of an inbox: `before` is its earlier summary.
local function index_inbox(id, before, summary)
  for key, score in pairs(scores_of(summary)) do
    set_score(key, score, id)
  end
  if before[2] and before[2] ~= summary[2] then
    call('ZREM', fed_key(before[2]), id)
  end
  if summary[2] then
    set_score(fed_key(summary[2]), summary[4], id)
  end
end

-- The contract is in inbox_write.lua.
local function write_inbox()
  local known = known_answer()
  if known then
    return known
  end
  local id, summary = request.id, request.summary
  local key = inbox_key(id)
  must_be({ P .. 'events', 'stream', ALL, 'zset', HELD, 'zset', EMPTY, 'zset', key, 'hash' })
  local before = read_summary(id)
  for _, consumer in ipairs({ before[2], summary[2] }) do
    must_be({ consumer and fed_key(consumer) or ALL, 'zset' })
  end
  if before[1] ~= request.seen then
    return 1
  end
  summary[6] = NOW
  local fields = { 'head', request.head, 'stands', cmsgpack.pack(summary) }
  for _, item in ipairs(request.added) do
    fields[#fields + 1] = whole(item[1])
    fields[#fields + 1] = item[2]
  end
  in_portions('HSET', key, fields)
  local gone = {}
  for place, seq in ipairs(request.removed) do
    gone[place] = whole(seq)
  end
  in_portions('HDEL', key, gone)
  index_inbox(id, before, summary)
  for _, event in ipairs(request.events) do
    append_event(event)
  end
  flush_log()
  notify('inbox')
  return keep_answer(0)
end
