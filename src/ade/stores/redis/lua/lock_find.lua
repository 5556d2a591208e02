-- uses: base, lock_places
-- flags: no-writes
-- lock_find: requests for locks (packed). request.namespace, or false for all; request.owner or false. With request.resource only
--   those that stand there, the holders first and then the line, of each at most request.limit; with an owner, all.

local found = {}
local last = request.owner and -1 or request.limit - 1 -- those of one owner are picked out of all by the caller

local function take(namespace, ids)
  for from = 1, #ids, 1000 do
    local records = look('HMGET', P .. 'lock:request:' .. namespace, unpack(ids, from, math.min(from + 999, #ids)))
    for place = 1, #records do
      if records[place] then
        found[#found + 1] = records[place]
      end
    end
  end
end

if request.resource then
  local members = {}
  for _, family in ipairs({ 'lock:held:', 'lock:line:' }) do
    for _, member in ipairs(look('ZRANGE', P .. family .. request.namespace .. ':' .. request.resource, 0, last)) do
      members[#members + 1] = string.sub(member, 18)
    end
  end
  take(request.namespace, members)
  return found
end
for _, namespace in ipairs(request.namespace and { request.namespace } or look('HKEYS', P .. 'lock:marks')) do
  if request.owner then
    take(namespace, look('SMEMBERS', P .. 'lock:owner:' .. namespace .. ':' .. request.owner))
  else
    for _, record in ipairs(look('HVALS', P .. 'lock:request:' .. namespace)) do
      found[#found + 1] = record
    end
  end
end
return found
