-- Placed behind identity.lua, fence.lua and turn.lua: the first part of both requests for a lock (acquire.lua, join.lua).
-- KEYS[1] the lock, KEYS[2] its fence counter, KEYS[3] its members' leases, KEYS[4] its members, KEYS[5] its queue,
--   KEYS[6] its turns
-- ARGV[1] value, ARGV[2] TTL in ms, ARGV[3] fence hint in unix µs, ARGV[4] life of the fence counter in ms
-- ARGV[5] minimum uptime in s with which this server grants; empty: the server's identity is not asked for
-- ARGV[6] waiter, or empty: not queued, ARGV[7] its ticket, ARGV[8] life of the queue in ms
-- ARGV[9] '1' if this is the only node: it takes the upper end of the hint's range for every hint. A server that lost its
--   counter, or came back with an older one, is then above every fence that it gave. Several nodes take the hint, and so agree.
-- ARGV[10] tokens of outer rlocks, which run this client
-- {answer, server, place}, where
-- answer is {'granted', fence, index} | {'held', type, length, first KiB, PTTL} |
--   {'held', type, length, marker, PTTL, members, 1 if the member is the one meant, a member's entry} |
--   {'turn', waiter, ms left} | {'restarted'} | {'replica'} | {'exhausted'} | {'superseded', waiter}
-- server is {uptime in s, run id, replication id} | {'forbidden', why} | {} if it was not asked
-- place is {rank or -1, unix time in µs, why the waiter cannot be queued, or empty}

-- Removes dead waiters from the first 16 places ahead of this one, and again, at most eight times. They would count in the
-- ranks of the waiters behind them, which would then poll later after the holder has died. A waiter that only lost its
-- connection comes back by its ticket.
local function drop_dead(waiter, round)
  local ahead, channels, dead = {}, {}, {}
  for _, other in ipairs(waiters(0, 15)) do
    if other == waiter then break end
    insert(ahead, other)
    insert(channels, channel(other))
  end
  if #ahead == 0 then return end
  local alive = try('PUBSUB', 'NUMSUB', unpack(channels))
  for rank, other in ipairs(alive.err and {} or ahead) do
    if alive[2 * rank] == 0 then insert(dead, other) end
  end
  if #dead == 0 or type(try('ZREM', QUEUE, unpack(dead))) == 'table' then return end
  try('ZREM', TURNS, unpack(dead))
  if #dead == 16 and round < 8 then drop_dead(waiter, round + 1) end
end

-- Whether this user may send a command. Redis 6 cannot tell. A command that was renamed away is an error, and is not allowed.
local function may(...)
  local _, allowed = pcall(redis.acl_check_cmd, ...)
  return allowed == true
end

local refused = ''
if waiter ~= '' and not replica then
  -- A release by a user that may subscribe but not publish wakes no waiter, so each must poll. If SUBSCRIBE is denied too, its
  -- own refusal says so.
  if may('SUBSCRIBE', channel(waiter)) and not may('PUBLISH', channel(waiter), 'go') then
    refused = 'NOPERM this user may not PUBLISH to rlock:wake:*'
    drop(waiter)
  else
    local added = try('ZADD', QUEUE, 'NX', ARGV[7], waiter)
    if type(added) == 'table' then refused = added.err end
    -- A replica whose identity was not asked for shows here. It must not report a holder: a waiter would stay and not be woken.
    replica = match(refused, 'READONLY')
    if replica then refused = '' end
    try('PEXPIRE', QUEUE, ARGV[8])
  end
end

local function reply(answer)
  -- No rank, or an error, is no number.
  return {answer, server, {tonumber(waiter ~= '' and try('ZRANK', QUEUE, waiter)) or -1, whole(micros), refused}}
end

-- The reply of a node that cannot grant now. The waiter came when it was told, so it has not stalled.
local function not_now(answer)
  if waiter ~= '' then
    try('ZREM', TURNS, waiter)
    drop_dead(waiter, 1)
  end
  return reply(answer)
end

if replica then return reply({'replica'}) end
local seen = peek()
