-- uses: base, lock_queues
-- flags: allow-oom
-- scan_locks: check whether lock tables and their indexes agree, and with request.repair correct the indexes. request.key: one of
--   the keys `lock:...`, without the prefix, request.members: some of its members. Returns sentences. The requests decide: index
--   entries without a request are deleted, and missing ones are added.

local faults = {}

local function report(sentence)
  faults[#faults + 1] = sentence
end

local function read(namespace, id)
  local packed = call('HGET', P .. 'lock:request:' .. namespace, id)
  local is_whole, one = pcall(cmsgpack.unpack, packed or '')
  if packed and is_whole and type(one) == 'table' and type(one.items) == 'table' and one.lease_until then
    return one
  end
  return packed and false or nil
end

-- The index entries of a request: {key, member, score, or false for a set}, ...
local function positions_of(one)
  local positions = { { LEASES, lease_member(one), whole(end_of(one)) }, { owner_key(one), one.id, '0' } }
  for key in pairs(kinds_of(one)) do
    positions[#positions + 1] = { key, one.id, '0' }
  end
  if is_settled_unattended(one) then
    positions[#positions + 1] = { UNATTENDED, lease_member(one), false }
  end
  for _, key in ipairs(queue_keys_of(one)) do
    positions[#positions + 1] = { key, member_of(one), rank_text(one) }
  end
  return positions
end

local function has_position(key, member, score)
  if score then
    return tonumber(call('ZSCORE', key, member) or 'nan') == tonumber(score)
  end
  return call('SISMEMBER', key, member) == 1
end

-- The stored seq and token of a namespace must not be below those of its requests.
local function check_marks(namespace, one)
  local marks = call('HGET', MARKS, namespace)
  local seq, token, looked = 0, 0, 0
  if marks then
    seq, token, looked = unpack(cmsgpack.unpack(marks))
  end
  local highest = token
  for _, item in ipairs(one.items) do
    highest = math.max(highest, item.token or 0)
  end
  if seq < one.seq or token < highest then
    report('the marks of ' .. namespace .. ' are below those of request ' .. one.id)
    if request.repair then
      call('HSET', MARKS, namespace, cmsgpack.pack({ math.max(seq, one.seq), highest, looked }))
    end
  end
end

local function check_request(namespace, id)
  local one = read(namespace, id)
  if one == false then
    report('request ' .. id .. ' of ' .. namespace .. ' cannot be read')
    if request.repair then
      call('HDEL', P .. 'lock:request:' .. namespace, id)
    end
  end
  if not one then
    return
  end
  check_marks(namespace, one)
  for _, position in ipairs(positions_of(one)) do
    local key, member, score = unpack(position)
    if not has_position(key, member, score) then
      report('request ' .. id .. ' is missing in ' .. key)
      if request.repair and score then
        call('ZADD', key, score, member)
      elseif request.repair then
        call('SADD', key, member)
      end
    end
  end
end

local function is_expected(one, key, member)
  for _, position in ipairs(one and positions_of(one) or {}) do
    if position[1] == key and position[2] == member then
      return true
    end
  end
  return false
end

local function check_member(key, namespace, id, member, is_set)
  local is_there = call(is_set and 'SISMEMBER' or 'ZSCORE', key, member)
  if not is_there or is_there == 0 or is_expected(read(namespace, id), key, member) then
    return
  end
  report(key .. ' names ' .. member .. ', which does not belong there')
  if request.repair then
    call(is_set and 'SREM' or 'ZREM', key, member)
  end
end

local family, rest = string.match(request.key, '^lock:(%a+):?(.*)$')
local namespace = string.match(rest, '^[^:]*')
for _, member in ipairs(request.members) do
  if family == 'request' then
    check_request(namespace, member)
  elseif family == 'leases' or family == 'called' then
    local of, id = string.match(member, '^([^:]*):(.*)$')
    check_member(P .. request.key, of or '', id or '', member, family == 'called')
  else
    local id = (family == 'owner' or family == 'kind') and member or string.sub(member, 18)
    check_member(P .. request.key, namespace, id, member, false)
  end
end
return faults
