-- uses: base, fields, state
-- upgrade_tasks: rewrite task states whose fields have the order of the first stores. Those that have the current order stay.
-- request.ids: the tasks.
-- Returns how many were rewritten.

-- Where each field of the current order was: its place in the first order.
local EARLIER = { 1, 2, 23, 8, 10, 11, 12, 13, 17, 18, 14, 19, 7, 20, 27, 28, 16, 26, 22, 3, 4, 5, 6, 9, 15, 21, 24, 25, 29 }

local count = 0
for _, id in ipairs(request.ids) do
  local state = read_state(id)
  if state and type(state[VERSION]) == 'string' then -- the name of the task had this place
    local current = {}
    for place, earlier in ipairs(EARLIER) do
      current[place] = state[earlier]
    end
    write_state(id, current)
    count = count + 1
  end
end
return count
