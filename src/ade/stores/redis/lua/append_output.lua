-- uses: base, fields, state
-- append_output: store lines that runs wrote, up to request.most of each run; the rest is cut and marked with request.mark.
-- request.runs: {task id, run id, lines}, ...; a line is {attempt, at, stream, text}. request.token: the same lines are stored
--   once. The number of lines of a run is in its task's hash, as {lines, newest tokens}. Lines of tasks that do not exist are
--   dropped.

local TOKENS = 8 -- kept for each run: more than the number of concurrent writes of one run

local function last_number(stream)
  local last = call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
  return last[1] and tonumber(string.match(last[1][1], '^%d+')) or 0
end

local function is_repeated(tokens)
  for _, token in ipairs(tokens) do
    if token == request.token then
      return true
    end
  end
  return false
end

local function write(id, run_id, lines, written)
  local stream = task_key(id) .. ':output'
  local number = last_number(stream)
  local room = request.most - written
  for place, line in ipairs(lines) do
    local kind, text = line[3], line[4]
    if place == room + 1 then
      kind, text = 'mark', request.mark
    elseif place > room then
      break
    end
    number, written = number + 1, written + 1
    call('XADD', stream, whole(number) .. '-0', 'run_id', run_id, 'attempt', line[1], 'at', whole(line[2]),
      'stream', kind, 'text', text)
  end
  return written
end

for _, run in ipairs(request.runs) do
  local id, field = run[1], 'output:' .. run[2]
  local known = call('HGET', task_key(id), field)
  local written, tokens = 0, {}
  if known then
    written, tokens = unpack(cmsgpack.unpack(known))
  end
  if call('EXISTS', task_key(id)) == 1 and written <= request.most and not is_repeated(tokens) then
    written = write(id, run[2], run[3], written)
    table.insert(tokens, 1, request.token)
    tokens[TOKENS + 1] = nil
    call('HSET', task_key(id), field, cmsgpack.pack({ written, tokens }))
  end
end
return 1
