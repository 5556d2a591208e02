-- The partition a script works on, its request, its time, and helpers for commands.
-- KEYS[1] (<prefix>meta) always exists and KEYS[2] (<prefix>void) never does: while the partition's slot moves to another
-- node, the server rejects such a call before it starts, so no script is ever executed halfway.
-- ARGV: request (MessagePack, or JSON for other languages), partition, number of partitions, name of the task streams, group,
-- results stream, dead-letter stream.
local P = string.sub(KEYS[1], 1, -5)
local IS_JSON = string.sub(ARGV[1], 1, 1) == '{' -- no MessagePack map begins with this byte
local request = IS_JSON and cjson.decode(ARGV[1]) or cmsgpack.unpack(ARGV[1])
local PARTITION, PARTITIONS = tonumber(ARGV[2]), tonumber(ARGV[3])
local STREAM, GROUP, RESULTS, DLQ = ARGV[4] .. ':', ARGV[5], ARGV[6], ARGV[7]
local call = redis.call

local server_time = call('TIME')
local SERVER_US = server_time[1] * 1000000 + server_time[2]
local NOW = request.now or math.floor(SERVER_US / 1000)
local STEADY = request.steady or NOW

-- A number as text: Lua's own conversion would round a time in microseconds.
local function whole(number)
  return string.format('%.0f', number)
end

-- One command with any number of arguments, in portions that fit on the interpreter's stack.
local function in_portions(command, key, arguments)
  for from = 1, #arguments, 1000 do
    call(command, key, unpack(arguments, from, math.min(from + 999, #arguments)))
  end
end

-- Notify all processes of a topic. Messages can be lost, so waiting processes also poll. Changed rules have a channel of their
-- own, for programs that subscribe to nothing else.
local function notify(topic)
  call('PUBLISH', string.gsub(P, '{.-}:', '') .. (topic == 'rules' and 'hints:rules' or 'hints'), topic)
end
