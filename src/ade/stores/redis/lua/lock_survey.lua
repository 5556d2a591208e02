-- uses: base, lock_places
-- flags: allow-oom
-- lock_survey: look whether books of locks and what stands around them fit, and with request.mend put right what does not.
-- request.key: one of the keys `lock:...` behind the prefix, request.members: some of what is in it. Answers sentences.
-- The requests are the truth: what they do not tell of goes, what they tell of and is missing comes back.

local faults = {}

local function note(sentence)
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

-- The keys a request stands in: {key, member, score, or false for a set}, ...
local function stands_of(one)
  local stands = { { LEASES, lease_member(one), whole(end_of(one)) }, { owner_key(one), one.id, '0' } }
  for key in pairs(kinds_of(one)) do
    stands[#stands + 1] = { key, one.id, '0' }
  end
  if is_called(one) then
    stands[#stands + 1] = { CALLED, lease_member(one), false }
  end
  for _, key in ipairs(places_of(one)) do
    stands[#stands + 1] = { key, member_of(one), rank_text(one) }
  end
  return stands
end

local function stands_there(key, member, score)
  if score then
    return tonumber(call('ZSCORE', key, member) or 'nan') == tonumber(score)
  end
  return call('SISMEMBER', key, member) == 1
end

-- The marks of a namespace must not be below what was given.
local function look_at_marks(namespace, one)
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
    note('the marks of ' .. namespace .. ' are below those of request ' .. one.id)
    if request.mend then
      call('HSET', MARKS, namespace, cmsgpack.pack({ math.max(seq, one.seq), highest, looked }))
    end
  end
end

local function look_at_request(namespace, id)
  local one = read(namespace, id)
  if one == false then
    note('request ' .. id .. ' of ' .. namespace .. ' cannot be read')
    if request.mend then
      call('HDEL', P .. 'lock:request:' .. namespace, id)
    end
  end
  if not one then
    return
  end
  look_at_marks(namespace, one)
  for _, stand in ipairs(stands_of(one)) do
    local key, member, score = unpack(stand)
    if not stands_there(key, member, score) then
      note('request ' .. id .. ' is missing in ' .. key)
      if request.mend and score then
        call('ZADD', key, score, member)
      elseif request.mend then
        call('SADD', key, member)
      end
    end
  end
end

local function is_told_of(one, key, member)
  for _, stand in ipairs(one and stands_of(one) or {}) do
    if stand[1] == key and stand[2] == member then
      return true
    end
  end
  return false
end

local function look_at_member(key, namespace, id, member, is_set)
  local is_there = call(is_set and 'SISMEMBER' or 'ZSCORE', key, member)
  if not is_there or is_there == 0 or is_told_of(read(namespace, id), key, member) then
    return
  end
  note(key .. ' names ' .. member .. ', which does not belong there')
  if request.mend then
    call(is_set and 'SREM' or 'ZREM', key, member)
  end
end

local family, rest = string.match(request.key, '^lock:(%a+):?(.*)$')
local namespace = string.match(rest, '^[^:]*')
for _, member in ipairs(request.members) do
  if family == 'request' then
    look_at_request(namespace, member)
  elseif family == 'leases' or family == 'called' then
    local of, id = string.match(member, '^([^:]*):(.*)$')
    look_at_member(P .. request.key, of or '', id or '', member, family == 'called')
  else
    local id = (family == 'owner' or family == 'kind') and member or string.sub(member, 18)
    look_at_member(P .. request.key, namespace, id, member, false)
  end
end
return faults
