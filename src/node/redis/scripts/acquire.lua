-- Takes the lock if nobody has it and nobody else is to have it first.
-- KEYS[1] the lock, KEYS[2] its fence counter, KEYS[3] its queue, KEYS[4] its open offer, KEYS[5] its watch
-- ARGV[1] value, ARGV[2] TTL in ms, ARGV[3] fence hint in unix µs, ARGV[4] life of the fence counter in ms
-- ARGV[5] the least uptime in s with which this server grants; empty: it is not asked what it is
-- ARGV[6] waiter, or empty: it does not wait yet, ARGV[7] its ticket, ARGV[8] life of the queue in ms
-- ARGV[9] '1' if this is the only node: a counter that is gone then starts at the upper end of the hint's range, above every
--   hint that this server took before it lost the counter. Several nodes start at the hint, and so agree at once.
-- {answer, server, place}, where
-- answer is {'granted', fence} | {'held', type, length, first KiB, PTTL} | {'turn', waiter, ms left} | {'restarted'} |
--   {'replica'} | {'exhausted'}
-- server is {uptime in s, run id, replication id} | {'forbidden', why} | {} if it was not asked
-- place is {rank or -1, unix time in µs, why it cannot be in the queue, or empty}
local FIRST, ROUNDS = 16, 8

-- Removes waiters that are gone from the first places ahead of this one, ROUNDS times FIRST of them at most. They would count in the ranks of waiters behind them,
-- which look later by that when the holder dies. A waiter that only lost its connection comes back by its ticket.
local function skip_the_gone(queue, waiter, round)
  local ahead, channels, gone = {}, {}, {}
  for _, other in ipairs(waiters(queue, 0, FIRST - 1)) do
    if other == waiter then break end
    table.insert(ahead, other)
    table.insert(channels, channel(other))
  end
  if #ahead == 0 then return end
  local there = redis.pcall('PUBSUB', 'NUMSUB', unpack(channels))
  for rank, other in ipairs(there.err and {} or ahead) do
    if there[2 * rank] == 0 then table.insert(gone, other) end
  end
  if #gone == 0 or type(redis.pcall('ZREM', queue, unpack(gone))) == 'table' then return end
  if #gone == FIRST and round < ROUNDS then skip_the_gone(queue, waiter, round + 1) end
end

-- Whether this user may listen but not publish. A release by such a user wakes no waiter, so each must look for itself. A user
-- that may not listen either is told so elsewhere, and Redis 6 does not say what a user may do.
local function is_mute(waiter)
  local may = redis.acl_check_cmd
  return may and may('SUBSCRIBE', channel(waiter)) and not may('PUBLISH', channel(waiter), 'go')
end

local waiter, server, young, replica = ARGV[6], {}, nil, nil
if ARGV[5] ~= '' then
  local process, data = redis.pcall('INFO', 'server'), redis.pcall('INFO', 'replication')
  if type(process) == 'table' or type(data) == 'table' then
    server = {'forbidden', type(process) == 'table' and process.err or data.err}
  else
    local uptime = string.match(process, 'uptime_in_seconds:(%d+)') or '0'
    server = {uptime, string.match(process, 'run_id:(%w+)') or '', string.match(data, 'master_replid:(%w+)') or ''}
    young = tonumber(uptime) < tonumber(ARGV[5])
    replica = string.find(data, 'role:slave', 1, true)
  end
end

local refused = ''
if waiter ~= '' and not replica and is_mute(waiter) then
  refused = 'NOPERM this user may not PUBLISH to rlock:wake:*'
  redis.pcall('ZREM', KEYS[3], waiter)
elseif waiter ~= '' and not replica then
  local added = redis.pcall('ZADD', KEYS[3], 'NX', ARGV[7], waiter)
  if type(added) == 'table' then refused = added.err end
  -- A replica that was not asked what it is says so here. It must not tell of a holder: a waiter would stay and not be woken.
  replica = string.find(refused, 'READONLY', 1, true)
  if replica then refused = '' end
  redis.pcall('PEXPIRE', KEYS[3], ARGV[8])
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function reply(answer)
  local rank = waiter ~= '' and redis.pcall('ZRANK', KEYS[3], waiter) or -1
  return {answer, server, {type(rank) == 'number' and rank or -1, string.format('%.0f', now), refused}}
end

if replica then return reply({'replica'}) end
local seen = peek(KEYS[1])
if seen then
  if waiter ~= '' then skip_the_gone(KEYS[3], waiter, 1) end
  return reply(seen)
end
if young then return reply({'restarted'}) end
local head, left = before(KEYS[3], KEYS[4], KEYS[5], waiter)
-- A waiter's name is shorter than that, and a reply has a limit.
if head then return reply({'turn', string.sub(head, 1, 1024), left}) end

-- c := max(c + 1, hint), the hint clamped to this server's clock ± 5 s so that a client's clock that is far ahead
-- cannot use the counter up.
-- The counter is written first: if memory is short, this call fails and nothing is changed.
local hint = math.min(math.max(tonumber(ARGV[3]), now - 5000000), now + 5000000)
local count = redis.call('GET', KEYS[2])
local fence = count and math.max((tonumber(count) or 0) + 1, hint) or ARGV[9] == '' and hint or now + 5000000
if fence >= 4503599627370496 then return reply({'exhausted'}) end
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[4])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if waiter ~= '' then
  redis.pcall('ZREM', KEYS[3], waiter)
  redis.pcall('DEL', KEYS[4])
end
return reply({'granted', string.format('%.0f', fence)})
