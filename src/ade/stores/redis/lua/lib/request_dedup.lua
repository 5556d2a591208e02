-- Answers of requests, kept for a repetition after the answer was lost. request.token identifies the request.
local ANSWER_KEY = P .. 'said:' .. (request.token or '')
local ANSWER_KEPT_MS = 600000 -- far longer than callers retry

local function known_answer()
  local known = call('GET', ANSWER_KEY)
  return known and cmsgpack.unpack(known)
end

local function keep_answer(answer)
  call('SET', ANSWER_KEY, cmsgpack.pack(answer), 'PX', ANSWER_KEPT_MS)
  return answer
end
