-- uses: base, inboxes
-- flags: no-writes
-- inbox_list: list inboxes of the partition after the id request.after, by id, request.limit at most: {head, summary}, ...

local found = {}
for _, id in ipairs(call('ZRANGEBYLEX', ALL, '(' .. request.after, '+', 'LIMIT', 0, request.limit)) do
  found[#found + 1] = call('HMGET', inbox_key(id), 'head', 'stands')
end
return found
