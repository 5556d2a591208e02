-- For workers of other languages, which ask in JSON: a record as one JSON text that tells nothing of how it is kept.
local function as_json(record)
  local state = cmsgpack.unpack(record[2])
  local told = cjson.encode({ id = record[1], run_id = state[RUN_ID], name = state[NAME], queue = state[QUEUE],
    priority = state[PRIORITY], attempt = state[ATTEMPT], generation = state[GENERATION], lease_until = state[LEASE] })
  local parts = { string.sub(told, 1, -2), ',"detail":', record[3] or 'null' } -- JSON already, and never decoded here
  for place, field in pairs({ [4] = 'outcome', [5] = 'progress' }) do
    if record[place] then
      parts[#parts + 1] = ',"' .. field .. '":' .. record[place]
    end
  end
  return table.concat(parts) .. '}'
end

-- Records (all but the first part of an answer) in the form of the request.
local function as_asked(answer)
  for place = 2, ASKED_IN_JSON and #answer or 0 do
    answer[place] = as_json(answer[place])
  end
  return answer
end
