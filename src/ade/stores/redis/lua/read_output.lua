-- uses: base, fields, state
-- flags: no-writes
-- read_output: return lines of task request.id after the number request.after, request.limit at most: {entry, {field, value,
--   ...}}, ...

local after = '(' .. whole(request.after) .. '-0'
return call('XRANGE', task_key(request.id) .. ':output', after, '+', 'COUNT', request.limit)
