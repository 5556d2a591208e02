-- uses: base, types, documents
-- flags: allow-oom
-- document_expire: remove documents that have expired, request.limit at most. Answers how many ends it has looked at.

must_be({ MARKS, 'hash', ENDS, 'zset' })
local due = call('ZRANGEBYSCORE', ENDS, '-inf', whole(NOW), 'LIMIT', 0, request.limit)
for _, name in ipairs(due) do
  local kind, id = string.match(name, '^([^:]*):(.*)$')
  local can_be_read, one = pcall(read_document, kind, id)
  if can_be_read and is_over(one) then
    raise_mark(kind, one[1])
    call('HDEL', documents_key(kind), id)
  end
  if can_be_read and one[2] and not is_over(one) then -- the document is the truth
    call('ZADD', ENDS, whole(one[2]), name)
  else
    call('ZREM', ENDS, name)
  end
end
keep_marks()
return #due
