-- All that a server does for a lock, in one script. ARGV[1] is the operation; the other arguments stand before each operation.
--
-- 1. It is called by its digest (EVALSHA). A server that does not have it is sent the whole of it once (script.rs).
-- 2. In Lua each call creates the closures of all functions that it comes past. So the common cases stand above the first one.
-- 3. Without memory a server executes DEL, PEXPIRE and all that follows a write. So these come before any SET, ZADD and HSET.
-- 4. TURN and LATE_TURN are times in ms that a waiter has to take its turn, the second behind one that has stalled. Their values
--    are those of lock/backoff.rs, and stand before the first line when this is sent.
-- 5. The queue's errors are ignored: a lock is taken and given back though an ACL forbids its queue, or PUBLISH.
--
-- KEYS[1] the lock, and as many of these as the operation reads:
--   [2] its fence counter
--   [3] its members' leases: token → end in ms, [4] its members: token → 'INDEX FENCE VALUE', index → 'TOKEN' or
--     'TOKEN INDEX': the member has its lock at this other index
--   [5] its queue: waiter → ticket, [6] its turns: waiter → ms when it was told that it may go
--   [7] the newest waiter with --supersede; of 'delete', 'forget', 'observe' and a release with a record the lock's record
--
-- An exclusive lock is 'TOKEN DETAILS', 'broken TOKEN DETAILS' or 'parked TOKEN DETAILS', or a hash with such a value at 'rlock'
-- (--as redisson). A lock with members, shared or with slots, is a marker 'rlock KIND n=NODES ttl=MS', with the longest TTL of any
-- member so far. It ends with its last member, and members count under a marker only.
-- INDEX is 0 if the lock is shared. KIND is 'x', 's' or 'k' and the number of slots.
-- A waiter is 'ID HOST PID SINCE KIND USER NOTE'. KIND may be missing, and is 'x' then. It subscribes to a channel of its own in
-- the lock's slot, so that PUBLISH and NUMSUB show whether it is alive.
local call, try, match, insert = redis.call, redis.pcall, string.match, table.insert
local OP, KEY = ARGV[1], KEYS[1]

-- take: takes the lock, or a place among its members, if there is one and no other waiter's turn comes first.
-- ARGV[2] value, [3] TTL in ms, [4] fence hint in unix µs, [5] life of the fence counter in ms
-- ARGV[6] minimum uptime in s with which this server grants; empty: the server's identity is not asked for
-- ARGV[7] waiter, or empty: not queued, [8] its ticket, [9] life of the queue in ms
-- ARGV[10] '1' if this is the only node: it takes its own clock for the hint. If it lost its counter, or came back with an older
--   one, it is then above every fence that it gave. Several nodes take the client's, whatever their own clocks, and so agree.
-- ARGV[11] tokens of outer rlocks, which run this client
-- ARGV[12] token, [13] kind, [14] number of nodes, [15] index from which a free one is looked for
-- ARGV[16] '1' if no other index will do. The token then moves there from the place that it has. If the index is taken, that
--   place is given up.
-- ARGV[17] '1' if the lock has the form of Redisson's, [18] 'CAME WAITER' of a waiter with --supersede, else missing
-- {answer, server, place}, where
-- answer is {'granted', fence, index} | {'held', type, length, first KiB, PTTL} |
--   {'held', type, length, marker, PTTL, members, 1 if the member is the one meant, a member's entry} |
--   {'turn', waiter, ms left} | {'restarted'} | {'replica'} | {'exhausted'} | {'superseded', waiter}
-- server is {uptime in s, run id, replication id} | {'forbidden', why} | {} if it was not asked
-- place is {rank or -1, ticket in unix µs of a client that enters the queue now, why the waiter cannot be queued, or empty}
local server, micros, young, replica, next_fence
if OP == 'take' then
  server = {}
  if ARGV[6] ~= '' then
    local process, data = try('INFO', 'server'), try('INFO', 'replication')
    -- A reply is a string, which has no field of this name, or an error.
    local denied = process.err or data.err
    if denied then
      server = {'forbidden', denied}
    else
      local uptime = match(process, 'seconds:(%d+)') or '0'
      server = {uptime, match(process, 'run_id:(%w+)') or '', match(data, 'replid:(%w+)') or ''}
      replica = match(data, 'role:slave')
      young = tonumber(uptime) < tonumber(ARGV[6])
    end
  end
  local time = call('TIME')
  micros = time[1] * 1e6 + time[2]

  -- c := max(c + 1, hint). The counter is written first: if memory is short, this call fails and nothing is changed. Returns nil
  -- if the counter is exhausted.
  next_fence = function()
    local hint = ARGV[10] == '1' and micros or tonumber(ARGV[4])
    local fence = math.max((tonumber(call('GET', KEYS[2]) or 0) or 0) + 1, hint)
    if fence >= 2^52 then return end
    local text = string.format('%.0f', fence)
    call('SET', KEYS[2], text, 'PX', ARGV[5])
    return text
  end

  local is_free = ARGV[7] == '' and ARGV[13] == 'x' and ARGV[17] == '' and not young and not replica and call('TYPE', KEY).ok == 'none'
  -- An error is no waiter: a lock is taken even if an ACL forbids its queue.
  if is_free and #try('ZRANGE', KEYS[5], 0, 0) == 0 then
    local fence = next_fence()
    if fence then call('SET', KEY, ARGV[2], 'PX', ARGV[3]) end
    return {fence and {'granted', fence, '0'} or {'exhausted'}, server, {-1, string.format('%.0f', micros), ''}}
  end
end

-- renew: extends the lock if it is the token's. PEXPIRE, not SET: a server that is out of memory still does it.
-- ARGV[2] token, [3] TTL in ms, [4] the holder's fence, [5] life of the fence counter in ms
-- ARGV[6] the index of the member's place
-- {'renewed', counter} | {'broken', type, length, tombstone, PTTL} | {'absent', counter} | {'held', type, length, first KiB, PTTL}
if OP == 'renew' and try('GETRANGE', KEY, 0, #ARGV[2]) == ARGV[2] .. ' ' then
  local count = try('GET', KEYS[2])
  if type(count) == 'string' and (tonumber(count) or 0) >= tonumber(ARGV[4]) then
    call('PEXPIRE', KEYS[1], ARGV[3])
    try('PEXPIRE', KEYS[2], ARGV[5])
    return {'renewed', string.format('%.0f', tonumber(count))}
  end
end

-- The record has two lines: the last run whose command has ended, and the last success under --once. Each is
-- 'FENCE TOKEN MS DETAILS', or empty. FENCE has 16 digits, so that these texts compare as the fences. MS is this server's unix time
-- then. Returns both.
local function record()
  local told = try('GETRANGE', KEYS[7], 0, 2047)
  return match(type(told) == 'string' and told or '', '^([^\n]*)\n([^\n]*)$')
end

-- Writes what the arguments from ARGV[at] on say of a run, over a lower fence only:
-- fence, token, details, age in ms, life in ms of the first line, and of the second; empty: not this line
-- Without a success it fails silently: then no more is lost than a line of 'inspect'.
local function note(at)
  local fence, run, success = ARGV[at], record()
  local time = call('TIME')
  local ms = time[1] * 1e3 + math.floor(time[2] / 1e3) - ARGV[at + 3]
  local entry = fence .. ' ' .. ARGV[at + 1] .. ' ' .. string.format('%.0f', ms) .. ' ' .. ARGV[at + 2]
  run, success = run or '', success or ''
  local life = math.max(tonumber(ARGV[at + 4]) or 0, tonumber(ARGV[at + 5]) or 0, tonumber(try('PTTL', KEYS[7])) or 0)
  if ARGV[at + 4] ~= '' and run < fence then run = entry end
  if ARGV[at + 5] ~= '' and success < fence then success = entry end
  local write = ARGV[at + 5] == '' and try or call
  write('SET', KEYS[7], run .. '\n' .. success, 'PX', life)
end

-- release: ends the token's lock, tombstone or not: compare and delete in one step. Wakes the next waiters.
-- park: the same where the lock stays for a time.
-- ARGV[2] token, or empty: the waiter leaves the queue, and no lock is released
-- ARGV[3] waiter, or empty: it never waited, [4] its ticket if it goes on waiting, else empty
-- ARGV[5] life of the queue in ms
-- ARGV[6] 'CAME WAITER' of a waiter with --supersede that goes on waiting, else empty
-- Of 'park' also:
-- ARGV[7] ms for which the lock stays, [8] the value in its place, [9] the expiry in ms that others must allow for
-- ARGV[10] '1' if a tombstone stays too, [11] the index of the member's place
-- Behind these what note() reads, or nothing
-- {'released'} | {'absent'} | {'held', type, length, first KiB, PTTL}
local is_ours = OP == 'release' and ARGV[2] ~= '' and try('GETRANGE', KEY, 0, #ARGV[2]) == ARGV[2] .. ' '
if is_ours and ARGV[3] == '' and #try('ZRANGE', KEYS[5], 0, 0) == 0 then
  call('DEL', KEY)
  try('DEL', KEYS[6])
  if ARGV[7] then note(7) end
  return {'released'}
end

-- 1. Numbers and times.

-- A number without an exponent.
local function whole(number) return string.format('%.0f', number) end

local function clock_ms()
  local time = call('TIME')
  return time[1] * 1e3 + math.floor(time[2] / 1e3)
end

-- The time by which the members' ends and the turns were written, and how far this server's clock is ahead of it: 0, unless the
-- lock has moved here from another server of a cluster. Known after peek().
local now, shift = clock_ms(), 0

-- 2. The lock and its fence counter.

-- Whether the lock has the form of Redisson's. Known after peek().
local hashed

local LEASES, HOLDERS = KEYS[3], KEYS[4]

-- Returns the end of the member that lasts longest, if there is one.
local function last_end() return call('ZREVRANGE', LEASES, 0, 0, 'WITHSCORES')[2] end

-- Whether a text is the value of this token. The whole token and the space behind it are compared.
local function is_of(text, token) return string.sub(text, 1, #token + 1) == token .. ' ' end

-- The key ends with its last member, and its TTL moves to another server as a span of time. So if that end is over too early by
-- this server's clock, the ends were written by another clock. A second is more than what one script takes.
local function keep_time(left)
  local early = now + left - (tonumber(last_end()) or now + left)
  if left > 0 and early > 1000 then now, shift = now - early, early end
end

-- Lets a key end when a member does.
local function expire(key, ends) call('PEXPIREAT', key, whole(ends + shift)) end

-- Reads the lock without fetching more than 1 KiB of it: a hash, a list or a 512 MB string is foreign and must cost the server
-- nothing. The value in a hash of ours is returned as a string is.
local function peek()
  local kind = call('TYPE', KEY).ok
  if kind == 'none' then return end
  -- A hash is foreign to a user who may not ask.
  local left, size = call('PTTL', KEY), kind == 'hash' and tonumber(try('HSTRLEN', KEY, 'rlock')) or 0
  hashed = size > 0 and size < 1025
  if hashed then return {'held', 'string', size, call('HGET', KEY, 'rlock'), left} end
  if kind ~= 'string' then return {'held', kind, 0, '', left} end
  local value = call('GETRANGE', KEY, 0, 1023)
  if shift == 0 and is_of(value, 'rlock') and KEYS[3] then keep_time(left) end
  return {'held', kind, call('STRLEN', KEY), value, left}
end

-- Whether what peek() returned is the value of this token.
local function ours(seen, token) return seen and seen[2] == 'string' and is_of(seen[4], token) end

-- Whether what peek() returned is the tombstone in the place of this token's lock.
local function broken(seen, token) return ours(seen, 'broken ' .. token) end

-- Whether what peek() returned is this token's lock whose command has ended.
local function parked(seen, token) return ours(seen, 'parked ' .. token) end

-- Sets an exclusive lock. Redisson's clients wait for a hash with a field 'UUID:THREAD'. 'mode' keeps those out that want a
-- read-write lock of this name.
local function put(value, ttl, as_redisson)
  if not as_redisson then
    call('SET', KEY, value, 'PX', ttl)
    return
  end
  -- These fail before anything is set where the user may not: a hash without an end would stay for ever.
  call('HEXISTS', KEY, 'rlock')
  call('HSTRLEN', KEY, 'rlock')
  call('HGET', KEY, 'rlock')
  call('PEXPIRE', KEY, ttl)
  call('HSET', KEY, match(value, '^%S+') .. ':1', 1, 'mode', 'rlock', 'rlock', value)
  call('PEXPIRE', KEY, ttl)
end

-- Deletes an exclusive lock of either form. Redisson's clients wait for a word on one of these channels, on the second one in a
-- cluster of Redis 7.
local function delete()
  call('DEL', KEY)
  if not hashed then return end
  local waited = 'redisson_lock__channel:' .. (string.find(KEY, '{', 1, true) and KEY or '{' .. KEY .. '}')
  for _, publish in ipairs({'PUBLISH', 'SPUBLISH'}) do try(publish, waited, '0') end
end

-- Returns the fence counter; empty if it cannot be read.
local function counter()
  local count = try('GET', KEYS[2])
  return type(count) ~= 'table' and whole(tonumber(count or 0) or 0) or ''
end

-- 3. Members. One is over when its own end has passed.

-- Returns kind, number of nodes and longest TTL, if what peek() returned is a marker.
local function marker(seen)
  if seen and seen[2] == 'string' then return match(seen[4], '^rlock (%S+) n=(%d+) ttl=(%d+)$') end
end

-- Returns a member's index, fence and value, whether or not it is over.
local function entry(token)
  local found = call('HGET', HOLDERS, token)
  if found then return match(found, '^(%d+) (%d+) (.*)$') end
end

-- The same of a member that is not over.
local function member(token)
  local ends = call('ZSCORE', LEASES, token)
  if ends and tonumber(ends) >= now then return entry(token) end
end

-- The lock ends with its last member, whichever that is. Without a member it is deleted, unless some were evicted.
local function span()
  local ends = last_end()
  if not ends then
    if call('HLEN', HOLDERS) == 0 then call('DEL', KEY) end
    return
  end
  for _, key in ipairs({KEY, LEASES, HOLDERS}) do expire(key, ends) end
end

local function take_out(token)
  local index = entry(token)
  call('ZREM', LEASES, token)
  call('HDEL', HOLDERS, token, index ~= '0' and index or token)
end

-- Takes out the members that are over. Returns whether there were any.
local function sweep()
  local over = call('ZRANGEBYSCORE', LEASES, '-inf', '(' .. whole(now))
  for _, token in ipairs(over) do take_out(token) end
  if over[1] then span() end
  return over[1]
end

local function write(token, index, fence, value)
  call('HSET', HOLDERS, token, index .. ' ' .. fence .. ' ' .. value)
end

-- Whether each member has its lease and its entry. If a server evicted either, members are unknown, and none joins them.
local function intact(kind)
  local members = call('ZCARD', LEASES)
  return members > 0 and call('HLEN', HOLDERS) == members * (kind == 's' and 1 or 2)
end

-- Extends a member's lease. PEXPIREAT comes first: a server that is out of memory does it, and then the rest of this script.
local function extend(token, ttl)
  local ends = now + ttl
  expire(KEY, math.max(ends, tonumber(last_end()) or 0))
  call('ZADD', LEASES, whole(ends), token)
  span()
end

-- Makes the token a member, in the place of one that it has. The first one under a new marker voids what is left of others.
local function admit(seen, kind, nodes, ttl, token, index, fence, value)
  local _, _, longest = marker(seen)
  local text = 'rlock ' .. kind .. ' n=' .. nodes .. ' ttl='
  if not seen then
    call('DEL', LEASES, HOLDERS)
    call('SET', KEY, text .. ttl, 'PX', ttl)
  elseif tonumber(ttl) > tonumber(longest) then
    call('SET', KEY, text .. ttl, 'KEEPTTL')
  end
  if seen and entry(token) then take_out(token) end
  write(token, index, fence, value)
  if index ~= '0' then call('HSET', HOLDERS, index, token) end
  extend(token, ttl)
end

-- Ends the token's lock of any kind, if it has it. A parked lock is its only if `ends_parked`: its run is over. Returns whether it
-- did, what is at the key then, and the answer if it did not.
local function give_up(token, ends_parked)
  local seen = peek()
  if marker(seen) then
    sweep()
    local _, _, value = entry(token)
    if not value or not ends_parked and is_of(value, 'parked ' .. token) then return false, peek(), nil end
    take_out(token)
    span()
    return true, peek()
  end
  local is_its = ours(seen, token) or broken(seen, token) or ends_parked and parked(seen, token)
  if not is_its then return false, seen, seen end
  delete()
  return true, nil
end

-- 4. The queue: smallest ticket first. A waiter leaves the turns with its next attempt.

local QUEUE, TURNS = KEYS[5], KEYS[6]

local function host(waiter) return match(waiter, '^%S* (%S*)') end
local function kind_of(waiter) return match(waiter, '^%S* %S* %S* %S* (%S+)') or 'x' end
local function channel(waiter) return 'rlock:wake:' .. match(QUEUE, '{.-}') .. ':' .. match(waiter, '^%S*') end

-- Returns the number of holders that a lock of this kind may have.
local function places(kind)
  return kind == 's' and math.huge or tonumber(match(kind, '^k(%d+)$')) or 1
end

-- Returns the waiters of ranks `from` to `to`; none if the queue cannot be read.
local function waiters(from, to)
  local found = try('ZRANGE', QUEUE, from, to)
  return found.err and {} or found
end

-- Removes a waiter; returns nil if that failed (read-only, ACL), so that callers do not loop forever.
local function drop(waiter)
  try('ZREM', TURNS, waiter)
  return tonumber(try('ZREM', QUEUE, waiter))
end

-- Returns the number of receivers: 0 if the waiter is gone, nil if PUBLISH is not allowed.
local function wake(waiter, word) return tonumber(try('PUBLISH', channel(waiter), word)) end

-- Returns the ms since the waiter was told that it may go; nil if it was not. A time in the future counts as long ago: the
-- clock was set back since.
local function told(waiter)
  local at = tonumber(try('ZSCORE', TURNS, waiter))
  if not at then return end
  local ago = now - at
  return ago < 0 and TURN or ago
end

-- Tells one waiter behind the head to look in TURN ms whether the head has taken the lock: the first one of ranks 1 to 7 on
-- another host, since what stopped the head may have stopped its host; else the last one, since it may have stopped its neighbours.
local function tell_standby(head)
  local behind, there = waiters(1, 7), {}
  for _, waiter in ipairs(behind) do
    if host(waiter) ~= host(head) then insert(there, waiter) end
  end
  for rank = #behind, 1, -1 do insert(there, behind[rank]) end
  for _, waiter in ipairs(there) do
    if not told(waiter) and wake(waiter, 'standby') ~= 0 then return end
  end
end

-- Offers the lock to the waiters at the head of the queue: those of one kind, as many as there is room for.
-- `group`, `room`: the kind of the members that hold it, and the number of further ones that it has room for. Without: the
-- lock is free, and goes to the kind of the first waiter. Waiters that were told before are told again then.
-- `me`: a waiter that knows that it is its turn.
-- A waiter that was told TURN ms ago and has not come has stalled. It is removed and told, so that it may come back.
local function offer(group, room, me)
  local again, rank, first = not group, 0
  while not room or room > 0 do
    local waiter = waiters(rank, rank)[1]
    if not waiter then
      if rank == 0 then try('DEL', TURNS) end
      break
    end
    group = group or kind_of(waiter)
    room = room or places(group)
    if kind_of(waiter) ~= group then break end
    local ago = told(waiter)
    local heard = 1
    if waiter ~= me and (again or not ago or ago >= TURN) then heard = wake(waiter, 'go') end
    if not heard then return end
    if heard == 0 or waiter ~= me and (ago or 0) >= TURN then
      if not drop(waiter) then return end
    else
      if not ago then
        try('ZADD', TURNS, whole(now), waiter)
        try('PEXPIRE', TURNS, 6e4)
        if rank == 0 then first = waiter end
      end
      room = room - 1
      rank = rank + 1
    end
  end
  if first then tell_standby(first) end
end

-- Offers what is free to the next waiters: of what peek() returned, the lock or a place. `me`: a waiter that knows that it is its turn.
local function pass_on(seen, me)
  local group = marker(seen)
  if group then
    offer(group, places(group) - call('ZCARD', LEASES), me)
  elseif not seen then
    offer(nil, nil, me)
  end
end

-- Makes the waiter of `came`, 'CAME WAITER', the newest one with --supersede, and tells the one before it. CAME is in unix µs with 16
-- digits, so that these texts compare as the times. Returns the newest one if that came later.
-- It outlives the waiter's place in the queue: a waiter that was cut off for a while must not run after a newer one.
-- A time in the future is from before the clock was set back, and does not count. Clocks of several nodes may differ by a minute.
local function supersede(came, life, only_node)
  local newest, time = try('GET', KEYS[7]), call('TIME')
  newest = type(newest) == 'string' and newest or ''
  local at, other = tonumber(match(newest, '^%d+')), string.sub(newest, 18, 1024)
  if at and newest > came and at <= (time[1] + (only_node == '1' and 0 or 60)) * 1e6 + time[2] then return other end
  if newest ~= '' and newest ~= came then
    drop(other)
    wake(other, 'go')
  end
  try('SET', KEYS[7], came, 'PX', life)
end

-- 5. The operations.

if OP == 'take' then
  local value, ttl, waiter, token, kind, nodes = ARGV[2], ARGV[3], ARGV[7], ARGV[12], ARGV[13], ARGV[14]

  -- Removes dead waiters from the first 16 places ahead of this one, and again, at most eight times. They would count in the
  -- ranks of the waiters behind them, which would then poll later after the holder has died. A waiter that only lost its
  -- connection comes back by its ticket.
  local function drop_dead(round)
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
    if #dead == 16 and round < 8 then drop_dead(round + 1) end
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
      local added = try('ZADD', QUEUE, 'NX', ARGV[8], waiter)
      if type(added) == 'table' then refused = added.err end
      -- A replica whose identity was not asked for shows here. It must not report a holder: a waiter would stay and not be woken.
      replica = match(refused, 'READONLY')
      if replica then refused = '' end
      try('PEXPIRE', QUEUE, ARGV[9])
    end
  end

  local function reply(answer)
    -- A client that enters now comes behind all others, also if the clock was set back since these came.
    local last = try('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2]
    local ticket = math.max(micros, (tonumber(last) or 0) + 1)
    -- No rank, or an error, is no number.
    return {answer, server, {tonumber(waiter ~= '' and try('ZRANK', QUEUE, waiter)) or -1, whole(ticket), refused}}
  end

  -- The reply of a node that cannot grant now. The waiter came when it was told, so it has not stalled.
  local function not_now(answer)
    if waiter ~= '' then
      try('ZREM', TURNS, waiter)
      drop_dead(1)
    end
    return reply(answer)
  end

  -- Adds to what peek() returned of a marker: the number of members, whether one of `tokens` is a member, and its entry, else
  -- that of any member.
  local function crowd(seen, tokens)
    if not marker(seen) then return seen end
    local shown, meant = call('ZRANGE', LEASES, 0, 0)[1], 0
    for other in string.gmatch(tokens, '%S+') do
      if call('ZSCORE', LEASES, other) then shown, meant = other, 1 end
    end
    seen[6], seen[7], seen[8] = call('ZCARD', LEASES), meant, shown and call('HGET', HOLDERS, shown) or ''
    return seen
  end

  -- `room`: the number of places that are left, at least one; `free`: whether the key is free.
  -- Returns the waiter ahead that keeps this one from going, and the ms that it has left to go itself; no ms if it cannot go
  -- yet. Returns nothing if it is this one's turn. The waiter is cut to 1 KiB: a reply has a limit. An rlock's entry is shorter.
  -- 1. Waiters ahead that do not listen any more are removed.
  -- 2. So are those that were told TURN ms ago and have not come, and all waiters behind the first of these from its host,
  --    which may have stopped as a whole. They are told, so that a live one comes back to the place that its ticket gives it. If
  --    this waiter is from that host too, the host has not stopped, and the one waiter alone is removed.
  -- 3. Each waiter of the same kind takes one of the places. It is told, if it was not yet. Behind one that has stalled it has
  --    LATE_TURN ms only: the lock has been free for long.
  -- 4. A waiter of another kind keeps all behind it out.
  local function before(room, free)
    local rank, left, late = 0, room
    if waiter ~= '' and told(waiter) then return end
    while true do
      local ahead = waiters(rank, rank)[1]
      if not ahead or ahead == waiter then return end
      local alive, ago = try('PUBSUB', 'NUMSUB', channel(ahead)), told(ahead)
      if alive.err then return end
      if alive[2] == 0 then
        if not drop(ahead) then return end
      elseif (ago or 0) >= TURN then
        late = true
        for _, stalled in ipairs(waiters(rank, -1)) do
          if stalled ~= waiter and (stalled == ahead or host(stalled) == host(ahead) and host(waiter) ~= host(ahead)) then
            if not drop(stalled) then return end
            wake(stalled, 'go')
          end
        end
      else
        local other = kind_of(ahead) ~= kind
        if not ago and (free or not other) then
          if free then offer(nil, nil, waiter) else offer(kind, room, waiter) end
          if late then try('ZADD', TURNS, whole(now - TURN + LATE_TURN), ahead) end
          ago = told(ahead)
        end
        left = left - 1
        if other or left <= 0 then return string.sub(ahead, 1, 1024), (ago or free) and TURN - (ago or 0) end
        rank = rank + 1
      end
    end
  end

  if replica then return reply({'replica'}) end
  local seen = peek()
  -- A waiter that came before another one gets no place. A place that it has got and only moves is not taken from it.
  local newer = ARGV[18] and ARGV[16] ~= '1' and supersede(ARGV[18], ARGV[5], ARGV[10])
  if newer then drop(waiter) end
  -- It may have been told that it is its turn.
  if newer and not seen then offer() end
  if newer then return reply({'superseded', newer}) end

  if kind == 'x' then
    if seen then return not_now(crowd(seen, ARGV[11])) end
    if young then return not_now({'restarted'}) end
    local ahead, left = before(1, true)
    if ahead then return reply({'turn', ahead, left}) end
    local fence = next_fence()
    if not fence then return reply({'exhausted'}) end
    put(value, ttl, ARGV[17] == '1')
    if waiter ~= '' then drop(waiter) end
    return reply({'granted', fence, '0'})
  end

  local over = marker(seen) and sweep()
  if over then seen = peek() end
  local group, on = marker(seen)
  if seen and (group ~= kind or on ~= nodes or not intact(kind)) then return not_now(crowd(seen, ARGV[11])) end
  if crowd(seen, ARGV[11]) and seen[7] == 1 then return not_now(seen) end
  if young then return not_now({'restarted'}) end

  local had = seen and entry(token)
  -- The same attempt was here before: this server has two names.
  if had and ARGV[16] ~= '1' then return reply(crowd(seen, token)) end
  local most = places(kind)
  local room = most - (seen and seen[6] or 0) + (had and 1 or 0)
  if room <= 0 then
    -- A place is free when the first member is over.
    seen[5] = math.max(0, call('ZRANGE', LEASES, 0, 0, 'WITHSCORES')[2] - now)
    return not_now(seen)
  end
  local called = had or waiter ~= '' and told(waiter)
  if not had then
    local ahead, left = before(room, not seen)
    if ahead and not left then return not_now(seen) end
    if ahead then return reply({'turn', ahead, left}) end
  end

  local index = kind == 's' and '0'
  for step = 0, index and -1 or ARGV[16] == '1' and 0 or most - 1 do
    local place = whole((ARGV[15] - 1 + step) % most + 1)
    local owner = seen and call('HGET', HOLDERS, place)
    if not owner or owner == token then
      index = place
      break
    end
  end
  if not index then
    if had then
      take_out(token)
      span()
      offer(kind, room)
    end
    return not_now(seen)
  end

  -- Readers that hold together share a fence: between them no writer can have had the lock. A place that moves gets a new number:
  -- the last holder of its index may have told this node one that is not below the old one.
  local count = call('GET', KEYS[2])
  local fence
  if seen and kind == 's' and count then
    fence = whole(tonumber(count) or 0)
    -- Not PEXPIRE: a server that is out of memory must refuse it, before anything is changed.
    call('SET', KEYS[2], fence, 'PX', ARGV[5])
  else
    fence = next_fence()
  end
  if not fence then return reply({'exhausted'}) end
  admit(seen, kind, nodes, ttl, token, index, fence, value)
  if waiter ~= '' then drop(waiter) end
  -- It came by itself, perhaps since a holder died: the next ones have not been told.
  if not called then offer(kind, room - 1) end
  return reply({'granted', fence, index})
end

if OP == 'renew' then
  local token, fence = ARGV[2], ARGV[4]
  local seen = peek()
  if not seen then return {'absent', counter()} end
  -- A renewal of an exclusive lock has no members' keys.
  if marker(seen) and LEASES then
    local index, number, value = member(token)
    if index ~= ARGV[6] then return {'absent', counter()} end
    if not is_of(value, token) then return {'broken', 'string', #value, value, seen[5]} end
    extend(token, ARGV[3])
    -- The members' own numbers stay when the counter moves on.
    if number ~= fence then write(token, index, fence, value) end
  else
    if broken(seen, token) then seen[1] = 'broken' end
    if not ours(seen, token) then return seen end
    call('PEXPIRE', KEY, ARGV[3])
  end
  -- c := max(c, the holder's): a counter that was lost comes back. A renewal does not fail because of the counter, and a value
  -- there that is not a string is not touched.
  local count = counter()
  if count ~= '' then
    if tonumber(count) < tonumber(fence) then
      try('SET', KEYS[2], fence, 'PX', ARGV[5])
    else
      try('PEXPIRE', KEYS[2], ARGV[5])
    end
  end
  return {'renewed', counter()}
end

if OP == 'release' or OP == 'park' then
  local waiter, noted = ARGV[3], OP == 'park' and 12 or 7

  -- Ends or parks the token's lock, if it has it. Returns what give_up() does. A copy of the request, sent on another connection,
  -- finds what the first one left.
  local function park(token)
    local seen, index, fence, value = peek(), nil, nil, nil
    local kind, nodes, longest = marker(seen)
    if kind then
      sweep()
      index, fence, value = entry(token)
    end
    -- Another member's place is left: what stayed there would not be this one's.
    if index and index ~= ARGV[11] then
      local ended, left = give_up(token)
      return ended, left, {'absent'}
    end
    if index and (ARGV[10] ~= '' or not is_of(value, 'broken ' .. token)) then
      local ends = now + ARGV[7]
      -- A server that is out of memory does what follows a write that needs none.
      expire(KEY, math.max(ends, last_end()))
      call('ZADD', LEASES, whole(ends), token)
      try('HSET', HOLDERS, token, index .. ' ' .. fence .. ' ' .. ARGV[8])
      if tonumber(ARGV[9]) > tonumber(longest) then
        try('SET', KEY, 'rlock ' .. kind .. ' n=' .. nodes .. ' ttl=' .. ARGV[9], 'KEEPTTL')
      end
      span()
      return true, peek(), nil, true
    end
    if kind then return give_up(token) end
    if ours(seen, token) or ARGV[10] ~= '' and broken(seen, token) then
      call('PEXPIRE', KEY, ARGV[7])
      try('SET', KEY, ARGV[8], 'KEEPTTL')
      return true, seen, nil, true
    end
    if parked(seen, token) then return true, seen end
    return give_up(token)
  end

  local released, seen, answer, is_parked = false
  if ARGV[2] == '' then
    seen = peek()
  elseif OP == 'park' then
    released, seen, answer, is_parked = park(ARGV[2])
  else
    released, seen, answer = give_up(ARGV[2])
  end
  if ARGV[noted] then
    -- A copy of the request finds the record of the first one, and writes it again: replicas are waited for on its own connection.
    -- An operator who deletes the lock by force records the same run as broken, which is no release.
    local own, details = ARGV[noted] .. ' ' .. ARGV[noted + 1] .. ' ', ' ' .. ARGV[noted + 2]
    for _, line in ipairs({record()}) do
      released = released or string.sub(line, 1, #own) == own and string.sub(line, -#details) == details
    end
    if released then note(noted) end
  end
  -- Whether the waiter knows this node's queue: it is queued, or held the key and so was its head.
  local knows = released
  if waiter ~= '' then
    if ARGV[4] == '' or ARGV[6] ~= '' and tostring(try('GET', KEYS[7]) or '') > ARGV[6] then
      drop(waiter)
    else
      knows = try('ZADD', QUEUE, 'NX', ARGV[4], waiter) == 0 or knows
      try('PEXPIRE', QUEUE, ARGV[5])
    end
  end
  -- The end that the first waiter knows is that of a lease.
  local first = is_parked and waiters(0, 0)[1]
  if first then wake(first, 'go') end
  -- A waiter that goes on waiting at the head knows that it is its turn. Every other one is told. So it is where the lock is free
  -- already: free.lua has told no waiter.
  if released or waiter ~= '' or not seen then pass_on(seen, ARGV[4] ~= '' and knows and waiter or nil) end
  return answer or released and {'released'} or {'absent'}
end

-- heal: sets the holder's key again if it is gone, else extends it. A tombstone in its place is extended too: it keeps others out
-- until the command is dead. A member joins those of its kind, or moves to its index. The place must be free, or that of a member
-- that wants the one which this one leaves.
-- A counter above the holder's fence shows that the node has granted the lock to another client since. The caller decides what
-- that means. The key is set only if the counter is the one that the caller was told: a request that runs late must not set
-- the key over a grant that came between.
-- ARGV[2] token, [3] value, [4] TTL in ms, [5] the holder's fence, [6] life of the fence counter in ms
-- ARGV[7] the holder's entry in the queue, or empty
-- ARGV[8] the counter that this node told with 'absent', or empty: any that is not above the holder's fence
-- ARGV[9] kind, [10] number of nodes, [11] index, [12] '1' if the lock has the form of Redisson's
-- {'renewed', counter} | {'broken', type, length, tombstone, PTTL} | {'healed', counter as it was} | {'absent', counter} |
--   {'held', type, length, first KiB, PTTL}
if OP == 'heal' then
  local token, ttl, fence, kind, index = ARGV[2], ARGV[4], ARGV[5], ARGV[9], ARGV[11]
  if ARGV[7] ~= '' then drop(ARGV[7]) end
  local seen = peek()
  if ours(seen, token) then
    call('PEXPIRE', KEY, ttl)
    return {'renewed', counter()}
  end
  if broken(seen, token) then
    call('PEXPIRE', KEY, ttl)
    seen[1] = 'broken'
  end
  if marker(seen) and sweep() then seen = peek() end
  local group, nodes = marker(seen)
  local swapped
  if group == kind and nodes == ARGV[10] and intact(kind) then
    local place, number, value = member(token)
    -- A member that is parked is the run's no more: a request that ran late.
    if place and is_of(value, 'parked ' .. token) then return seen end
    -- A wrong place is not extended: it is another member's.
    if place == index then extend(token, ttl) end
    if place and not is_of(value, token) then return {'broken', 'string', #value, value, seen[5]} end
    if place == index then
      if number ~= fence then write(token, index, fence, value) end
      return {'renewed', counter()}
    end
    -- Two attempts that came here in another order than elsewhere have each other's place. The first one to be healed leaves a note
    -- where it is, and the second one changes places with it. Any other owner keeps its place.
    local owner, wanted = match(kind ~= 's' and call('HGET', HOLDERS, index) or '', '^(%S+) ?(%d*)$')
    if owner and wanted ~= place then
      if place then try('HSET', HOLDERS, place, token .. ' ' .. index) end
      return seen
    end
    swapped = owner and {owner, place, entry(owner)}
  elseif seen then
    return seen
  end
  local count = tonumber(call('GET', KEYS[2])) or 0
  local now_at = whole(count)
  if now_at ~= ARGV[8] and (ARGV[8] ~= '' or count > tonumber(fence)) then return {'absent', now_at} end
  call('SET', KEYS[2], whole(math.max(count, tonumber(fence))), 'PX', ARGV[6])
  if kind == 'x' then
    put(ARGV[3], ttl, ARGV[12] == '1')
  else
    if swapped then
      local other, place, _, number, value = unpack(swapped)
      take_out(token)
      write(other, place, number, value)
      call('HSET', HOLDERS, place, other)
    end
    admit(seen, kind, ARGV[10], ttl, token, index, fence, ARGV[3])
  end
  return {'healed', now_at}
end

-- break: puts a tombstone in the place of a lock. The key keeps others out, and the holder learns at its next renewal that it must
-- stop its command, or at once if it listens. Once that is dead the holder deletes the tombstone as it would its lock.
-- ARGV[2] the holder's token, [3] the tombstone: 'broken', token and details. It keeps the TTL. [4] the holder's channel
-- {'forced'} | {'absent'} | {'held', type, length, first KiB, PTTL}
if OP == 'break' then
  local token = ARGV[2]
  local seen = peek()
  if not seen then return {'absent'} end
  local index, fence, value = nil, nil, seen[4]
  if marker(seen) then
    index, fence, value = member(token)
    if not index then return {'absent'} end
    -- A server that is out of memory does what follows a write that needs none.
    extend(token, call('ZSCORE', LEASES, token) - now)
  end
  local is_broken = seen[2] == 'string' and is_of(value, 'broken ' .. token)
  if not is_broken and (seen[2] ~= 'string' or not is_of(value, token)) then return seen end
  if is_broken then
    -- The tombstone of an earlier request stays.
  elseif index then
    write(token, index, fence, ARGV[3])
  elseif hashed then
    call('HSET', KEY, 'rlock', ARGV[3])
  else
    call('SET', KEY, ARGV[3], 'KEEPTTL')
  end
  try('PUBLISH', ARGV[4], 'go')
  return {'forced'}
end

-- delete: deletes a lock, or the tombstone in its place, without waiting for its holder, and tells it and the next waiters.
-- ARGV[2] the holder's token, [3] the highest fence seen, [4] life of the fence counter in ms, [5] the holder's channel
-- Behind these what note() reads, or nothing
-- {'forced'} | {'absent'} | {'held', type, length, first KiB, PTTL}
if OP == 'delete' then
  local done, seen, answer = give_up(ARGV[2], true)
  if not done then return answer or {'absent'} end
  if ARGV[6] then note(6) end
  -- The counter is raised above the holder's fence. A healing request of the holder that is in flight then changes nothing. A
  -- server that is out of memory refuses that, as it will refuse the healing, and still deletes the key.
  local count = counter()
  if count ~= '' then
    local fence = math.max(tonumber(count), tonumber(ARGV[3])) + 1
    if fence < 4503599627370496 then try('SET', KEYS[2], whole(fence), 'PX', ARGV[4]) end
  end
  try('PUBLISH', ARGV[5], 'go')
  pass_on(seen)
  return {'forced'}
end

-- delete_foreign: deletes a foreign value if it is still the one that was observed, and wakes the next waiters.
-- ARGV[2] type, [3] length, [4] first KiB
-- {'forced'} | {'absent'} | {'held', type, length, first KiB, PTTL}
if OP == 'delete_foreign' then
  local seen = peek()
  if not seen then return {'absent'} end
  if hashed then seen[2] = 'hash' end
  if seen[2] ~= ARGV[2] or seen[3] ~= tonumber(ARGV[3]) or seen[4] ~= ARGV[4] then return seen end
  call('UNLINK', KEY)
  offer()
  return {'forced'}
end

-- forget: deletes the success in the record, if it is still that of the run that was shown. ARGV[2] the run's token
-- {'forced'} | {'absent'}
if OP == 'forget' then
  local run, success = record()
  if match(success or '', '^%d+ (%S+)') ~= ARGV[2] then return {'absent'} end
  local left = call('PTTL', KEYS[7])
  call('DEL', KEYS[7])
  try('SET', KEYS[7], run .. '\n', 'PX', left)
  return {'forced'}
end

-- announce: makes a waiter that got the lock at once the newest one, so that older ones do not run after it.
-- ARGV[2] 'CAME WAITER', [3] life of KEYS[7] in ms, [4] '1' if this is the only node
-- {'announced'} | {'superseded', waiter}
if OP == 'announce' then
  local newer = supersede(ARGV[2], ARGV[3], ARGV[4])
  return newer and {'superseded', newer} or {'announced'}
end

-- observe: reads the lock's holders, its fence counter and its queue. Changes nothing.
-- ARGV[2] number of waiters wanted, [3] most bytes of them
-- ARGV[4] number of members wanted, [5] most bytes of them, [6] token of a member that is wanted first, or empty
-- {seen, members, fence, {waiter, ticket, waiter, ticket, …}, more, record, unix time in ms}
--   seen is {'held', type, length, first KiB, PTTL} | {}, and of a marker one number more: how many members there are. Of a lock in
--     Redisson's form the type is 'hash'
--   members is {token, ms left, entry, token, ms left, entry, …}
--   fence is empty if there is none, more is 1 if not all waiters are returned
--   record is empty if there is none
if OP == 'observe' then
  local fence = try('GETRANGE', KEYS[2], 0, 19)
  local wanted, room = tonumber(ARGV[2]), tonumber(ARGV[3])
  local queued, more = {}, 0
  if wanted > 0 then
    local found = try('ZRANGE', QUEUE, 0, wanted, 'WITHSCORES')
    for i = 1, found.err and 0 or #found, 2 do
      room = room - #found[i] - #found[i + 1]
      if i > 2 * wanted or room < 0 then
        more = 1
        break
      end
      queued[i], queued[i + 1] = found[i], found[i + 1]
    end
  end

  local seen, members = peek(), {}
  if hashed then seen[2] = 'hash' end
  if marker(seen) then
    local tokens = call('ZRANGEBYSCORE', LEASES, whole(now), '+inf')
    local space = tonumber(ARGV[5])
    seen[6] = #tokens
    insert(tokens, 1, ARGV[6])
    for rank, token in ipairs(tokens) do
      if rank == 1 or token ~= ARGV[6] then
        local found = member(token) and call('HGET', HOLDERS, token)
        if found then
          space = space - #found
          if #members >= 3 * ARGV[4] or space < 0 then break end
          insert(members, token)
          insert(members, call('ZSCORE', LEASES, token) - now)
          insert(members, found)
        end
      end
    end
  end
  local told = try('GETRANGE', KEYS[7], 0, 2047)
  local known = function(text) return type(text) == 'string' and text or '' end
  return {seen or {}, members, known(fence), queued, more, known(told), whole(now + shift)}
end
return {err = 'ERR lock.lua knows no operation of this name'}
