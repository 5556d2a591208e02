-- The number of entries of a task stream that are not delivered yet. Delivered entries are few: only running tasks have them.
local function waiting_in(stream)
  local length = call('XLEN', stream)
  local group = length > 0 and group_of(stream)
  return group and length - #call('XRANGE', stream, '-', group['last-delivered-id']) or length
end
