-- The state of a task: a MessagePack array in the field `state` of its hash. `false` means none.
-- Fields that change with a run come first and the log comes last, so that lib/fast_path.lua can replace both without unpacking
-- the rest.
local STATUS, STAGE = 1, 2
local WHERE = 3 -- where it is queued or was delivered from: 'stream', 'line' (a lane), or 'back:<entry>'
local VERSION, ATTEMPT, RUN_ID, WORKER, LEASE, STARTED, FINISHED, WAITING = 4, 5, 6, 7, 8, 9, 10, 11
local DISCARDED, DEADLINE, KEY = 12, 13, 14
local EXPIRES = 15 -- when its result expires
local LETTER = 16 -- its entry in the dead-letter stream
local UPDATED = 17
local AWAITED = 18 -- other tasks wait for it
local SEQ = 19 -- age: lower is older; also the id of its first stream entry
local QUEUE, NAME, PRIORITY, RUN_AFTER, GENERATION, CREATED, PARENT = 20, 21, 22, 23, 24, 25, 26
local IDEM, DIGEST = 27, 28 -- digests of the idempotency key and of the arguments
local LOGGED = 29 -- ticks of its entries in the event log, separated by spaces
local NEEDS = 30 -- capabilities that its worker must have, separated by commas; absent or false if there are none
local APPROVED = 31 -- digest of a governed task, for the event of its claim; absent or false for all other tasks
local TEAM, TICKET = 32, 33 -- by which it is found; absent if it has neither
