-- Inboxes: a hash for each, with its `head` (JSON), where it `stands`, and its items (JSON) by their seq.
-- stands: {version, consumer or false, number of items, when the oldest was put in or false, steady end of the lease of the batch
-- that is out or false, when it was written}, packed.
local ALL, HELD, EMPTY = P .. 'inbox:all', P .. 'inbox:held', P .. 'inbox:empty'
local UNUSED = { 0, false, 0, false, false, 0 }

local function inbox_key(id)
  return P .. 'inbox:record:' .. id
end

local function fed_key(consumer)
  return P .. 'inbox:fed:' .. consumer
end

-- Where an inbox stands; UNUSED when there is none. Fails when it cannot be read.
local function read_stand(id)
  local packed = call('HGET', inbox_key(id), 'stands')
  if not packed then
    return UNUSED
  end
  local can_be_read, stand = pcall(cmsgpack.unpack, packed)
  if not can_be_read or type(stand) ~= 'table' or type(stand[1]) ~= 'number' or type(stand[6]) ~= 'number' then
    error({ err = 'ERR the inbox ' .. id .. ' cannot be read' })
  end
  return stand
end

-- The score it must have in each index, or false where it must not be.
local function places_of(stand)
  local exists = stand[1] > 0
  return {
    [ALL] = exists and 0,
    [HELD] = stand[5],
    [EMPTY] = exists and stand[3] == 0 and stand[6],
  }
end

local function put_into_place(key, score, id)
  if score then
    call('ZADD', key, whole(score), id)
  else
    call('ZREM', key, id)
  end
end

-- Put an inbox into its places: `before` is where it stood.
local function place_inbox(id, before, stand)
  for key, score in pairs(places_of(stand)) do
    put_into_place(key, score, id)
  end
  if before[2] and before[2] ~= stand[2] then
    call('ZREM', fed_key(before[2]), id)
  end
  if stand[2] then
    put_into_place(fed_key(stand[2]), stand[4], id)
  end
end

-- The contract is that of inbox_write.
local function write_inbox()
  local known = remembered()
  if known then
    return known
  end
  local id, stand = request.id, request.stands
  local key = inbox_key(id)
  must_be({ P .. 'events', 'stream', ALL, 'zset', HELD, 'zset', EMPTY, 'zset', key, 'hash' })
  local before = read_stand(id)
  for _, consumer in ipairs({ before[2], stand[2] }) do
    must_be({ consumer and fed_key(consumer) or ALL, 'zset' })
  end
  if before[1] ~= request.seen then
    return 1
  end
  stand[6] = NOW
  local fields = { 'head', request.head, 'stands', cmsgpack.pack(stand) }
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
  place_inbox(id, before, stand)
  events, told = request.events, #request.events
  close_log()
  ring('inbox')
  return remember(0)
end
