-- The partition a script works on, its request, its time, and calls with many arguments.
-- KEYS[1] (<prefix>meta) always exists and KEYS[2] (<prefix>void) never does: while the partition's slot moves to another
-- node, the server refuses such a call before it has begun, so no script is ever carried out by half.
-- ARGV: request (MessagePack, or JSON as other languages like it), partition, partitions, name of the task streams, group, results stream, dead-letter stream.
local P = string.sub(KEYS[1], 1, -5)
local ASKED_IN_JSON = string.sub(ARGV[1], 1, 1) == '{' -- no map begins so in MessagePack
local request = ASKED_IN_JSON and cjson.decode(ARGV[1]) or cmsgpack.unpack(ARGV[1])
local PARTITION, PARTITIONS = tonumber(ARGV[2]), tonumber(ARGV[3])
local STREAM, GROUP, RESULTS, DLQ = ARGV[4] .. ':', ARGV[5], ARGV[6], ARGV[7]
local call = redis.call

local server_time = call('TIME')
local SERVER_US = server_time[1] * 1000000 + server_time[2]
local NOW = request.now or math.floor(SERVER_US / 1000)
local STEADY = request.steady or NOW

-- Large numbers as text: Lua's own form would round a time in microseconds.
local function whole(number)
  return string.format('%.0f', number)
end

-- One command with any number of arguments, in portions the interpreter's stack can hold.
local function in_portions(command, key, arguments)
  for from = 1, #arguments, 1000 do
    call(command, key, unpack(arguments, from, math.min(from + 999, #arguments)))
  end
end

-- Tell all processes that something of a topic happened. A hint only: whoever waits also looks by itself. Changed rules
-- have a channel of their own, for programs that listen to nothing else.
local function ring(topic)
  call('PUBLISH', string.gsub(P, '{.-}:', '') .. (topic == 'rules' and 'hints:rules' or 'hints'), topic)
end
