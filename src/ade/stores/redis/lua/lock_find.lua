-- uses: base, lock_queues
-- flags: no-writes
-- lock_find: list lock requests (packed), request.limit at most. request.namespace, or false for all; request.owner, request.kind
--   (of a resource they hold or wait for), and request.resource, each or false. With a resource, its holders come first, then its
--   wait queue; with an owner or a kind, the requests of a namespace are ordered by id.

local PORTION = math.min(math.max(request.limit, 100), 1000)
local IS_PICKED = request.owner and request.kind or request.resource and (request.owner or request.kind)
local found = {}

local function is_full()
  return #found >= request.limit
end

-- Whether it matches the conditions that the index does not cover.
local function is_meant(packed)
  if not IS_PICKED then
    return true
  end
  local one = cmsgpack.unpack(packed)
  local has_kind = not request.kind
  for _, item in ipairs(one.state ~= 'victim' and one.items or {}) do
    has_kind = has_kind or kind_of(item.resource) == request.kind
  end
  return has_kind and (not request.owner or one.owner == request.owner)
end

local function take(packed)
  if packed and not is_full() and is_meant(packed) then
    found[#found + 1] = packed
  end
end

-- Read an index as far as necessary. `skipped`: number of characters before the id in a member.
local function take_from(index, namespace, skipped)
  local from = 0
  repeat
    local members = read_key('ZRANGE', index, from, from + PORTION - 1)
    for place, member in ipairs(members) do
      members[place] = string.sub(member, skipped + 1)
    end
    for _, packed in ipairs(members[1] and read_key('HMGET', P .. 'lock:request:' .. namespace, unpack(members)) or {}) do
      take(packed)
    end
    from = from + PORTION
  until is_full() or #members < PORTION
end

-- Read a whole namespace. HSCAN can return a request twice.
local function take_any(namespace)
  local key, cursor, seen = P .. 'lock:request:' .. namespace, '0', {}
  repeat
    local part
    cursor, part = unpack(read_key('HSCAN', key, cursor, 'COUNT', PORTION))
    for place = 1, #part, 2 do
      if not seen[part[place]] then
        seen[part[place]] = true
        take(part[place + 1])
      end
    end
  until cursor == '0' or is_full()
end

for _, namespace in ipairs(request.namespace and { request.namespace } or read_key('HKEYS', MARKS)) do
  if is_full() then
    break
  elseif request.resource then
    for _, family in ipairs({ 'lock:held:', 'lock:line:' }) do
      take_from(P .. family .. namespace .. ':' .. request.resource, namespace, 17)
    end
  elseif request.owner then
    take_from(owner_key({ namespace = namespace, owner = request.owner }), namespace, 0)
  elseif request.kind then
    take_from(P .. 'lock:kind:' .. namespace .. ':' .. request.kind, namespace, 0)
  else
    take_any(namespace)
  end
end
return found
