-- What was answered to a request that comes again because its answer was lost. request.token names the request.
local SAID = P .. 'said:' .. (request.token or '')
local SAID_MS = 600000 -- far longer than anybody goes on trying

local function remembered()
  local known = call('GET', SAID)
  return known and cmsgpack.unpack(known)
end

local function remember(answer)
  call('SET', SAID, cmsgpack.pack(answer), 'PX', SAID_MS)
  return answer
end
