-- Placed before the scripts that know the queue. KEYS[5] is the queue, KEYS[6] its turns.
-- The queue is a sorted set: waiter → ticket, smallest first. A waiter is 'ID HOST PID SINCE KIND USER NOTE'. KIND may be
-- missing, and is 'x' then. It subscribes to a channel of its own in the lock's slot, so that PUBLISH and NUMSUB show whether it is alive.
-- The turns are a sorted set: waiter → ms when it was told that it may take the lock. It leaves them with its next attempt.
-- Errors are ignored throughout: a lock is taken and released even if an ACL forbids its queue.
-- Time in ms that a waiter has to take its turn: STANDBY of lock/waiting/wakeups.rs.
local STALLED = 500
local QUEUE, TURNS = KEYS[5], KEYS[6]
local WAKE = 'rlock:wake:' .. match(QUEUE, '{.-}') .. ':'

local function host(waiter) return match(waiter, '^%S* (%S*)') end
local function kind_of(waiter) return match(waiter, '^%S* %S* %S* %S* (%S+)') or 'x' end
local function channel(waiter) return WAKE .. match(waiter, '^%S*') end

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
  local ago = clock_ms() - at
  return ago < 0 and STALLED or ago
end

-- Tells one waiter behind the head to look in STALLED ms whether the head has taken the lock: the first one of ranks 1 to 7 on
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
-- A waiter that was told STALLED ms ago and has not come has stalled. It is removed and told, so that it may come back.
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
    if waiter ~= me and (again or not ago or ago >= STALLED) then heard = wake(waiter, 'go') end
    if not heard then return end
    if heard == 0 or waiter ~= me and (ago or 0) >= STALLED then
      if not drop(waiter) then return end
    else
      if not ago then
        try('ZADD', TURNS, clock_ms(), waiter)
        try('PEXPIRE', TURNS, 6e4)
        if rank == 0 then first = waiter end
      end
      room = room - 1
      rank = rank + 1
    end
  end
  if first then tell_standby(first) end
end
