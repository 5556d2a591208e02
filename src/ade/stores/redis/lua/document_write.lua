-- uses: base, types, fields, state, request_dedup, log, documents
-- flags: allow-oom
-- document_write: apply request.writes in order, all or none: {kind, id, body (JSON) or false to delete it, expected version (0:
--   none, false: any), expiry (ms) or false}, ...; request.events: packed events; request.token. With request.notifies, processes
--   are notified that rules changed. Returns 0, or the position of the first write whose document does not have the expected
--   version.

local known = known_answer()
if known then
  return known
end
local expected = { P .. 'events', 'stream', MARKS, 'hash', EXPIRIES, 'zset' }
for _, write in ipairs(request.writes) do
  expected[#expected + 1] = documents_key(write[1])
  expected[#expected + 1] = 'hash'
end
must_be(expected)

local after = {} -- by kind and id: {kind, id, document}
for place, write in ipairs(request.writes) do
  local kind, id, body, seen, expires_at = unpack(write)
  local name = expiry_member(kind, id)
  local one = after[name] and after[name][3] or read_document(kind, id)
  if seen and seen ~= (is_expired(one) and 0 or one[1]) then
    return place
  end
  if body then
    one = { (one[3] and one[1] or mark_of(kind)) + 1, expires_at, body }
  else
    raise_mark(kind, one[1])
    one = { 0, false, false }
  end
  after[name] = { kind, id, one }
end

for name, each in pairs(after) do
  local kind, id, one = unpack(each)
  if one[3] then
    call('HSET', documents_key(kind), id, cmsgpack.pack(one))
  else
    call('HDEL', documents_key(kind), id)
  end
  if one[2] then
    call('ZADD', EXPIRIES, whole(one[2]), name)
  else
    call('ZREM', EXPIRIES, name)
  end
end
write_marks()
for _, event in ipairs(request.events) do
  append_event(event)
end
flush_log()
if request.notifies then
  notify('rules')
end
return keep_answer(0)
