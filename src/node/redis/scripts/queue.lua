-- Placed before the scripts that know the queue. The last of their KEYS is the standbys' key.
-- The queue is a sorted set: waiter → ticket, smallest first. A waiter is 'ID HOST PID SINCE' and subscribes to a channel of
-- its own in the lock's slot, so that PUBLISH and NUMSUB show whether it is alive. The open offer is 'ID MS': the waiter whose
-- turn it is, and when it was told. The standbys are 'MS' and a line for each waiter that was told to check on the head.
-- Errors are ignored throughout: a lock is taken and released even if an ACL forbids its queue.
-- Time in ms that a waiter has to take its turn: STANDBY of lock/waiting/wakeups.rs.
local STALLED = 1000
local WAKE = 'rlock:wake:' .. string.match(KEYS[#KEYS], '{.-}') .. ':'

local function id(waiter) return string.match(waiter, '^%S*') end
local function host(waiter) return string.match(waiter, '^%S* (%S*)') end
local function channel(waiter) return WAKE .. id(waiter) end

local function clock_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Returns the waiters of ranks `from` to `to`; none if the queue cannot be read.
local function waiters(queue, from, to)
  local found = redis.pcall('ZRANGE', queue, from, to)
  return found.err and {} or found
end

-- Removes a waiter; returns false if that failed (read-only, ACL), so that callers do not loop forever.
local function drop(queue, waiter) return type(redis.pcall('ZREM', queue, waiter)) == 'number' end

-- Returns the number of receivers: 0 if the waiter is gone, nil if PUBLISH is not allowed.
local function wake(waiter, word)
  local heard = redis.pcall('PUBLISH', channel(waiter), word)
  return type(heard) == 'number' and heard or nil
end

-- Appoints up to three standbys that check in one second whether the head has taken the lock. Skipped if at least two
-- standbys from the last second are still queued: they keep checking as long as it is another waiter's turn.
-- Standbys come from other hosts than the head if there are any, and not all from neighbouring ranks, since what stopped the
-- head may have stopped its neighbours. They come from the end of the queue, since those waiters stay longest.
local function appoint_standbys(queue, standbys, head)
  local now, record = clock_ms(), redis.pcall('GET', standbys)
  local since, names = string.match(type(record) == 'string' and record or '', '^(%d+)\n(.*)$')
  if since and now >= tonumber(since) and now - since < STALLED then
    local left = 0
    for waiter in string.gmatch(names, '[^\n]+') do
      if waiter ~= head and type(redis.pcall('ZRANK', queue, waiter)) == 'number' then left = left + 1 end
    end
    if left >= 2 then return end
  end
  local last, behind, told = waiters(queue, -8, -1), {}, {}
  for rank = #last, 1, -1 do table.insert(behind, last[rank]) end
  table.insert(behind, 2, waiters(queue, 1, 1)[1])
  for _, elsewhere in ipairs({true, false}) do
    for _, waiter in ipairs(behind) do
      if #told < 3 and waiter ~= head and (host(waiter) ~= host(head)) == elsewhere and not told[waiter] then
        told[waiter] = true
        if wake(waiter, 'standby') ~= 0 then told[#told + 1] = waiter end
      end
    end
  end
  redis.pcall('SET', standbys, string.format('%.0f', now) .. '\n' .. table.concat(told, '\n'), 'PX', STALLED)
end

-- Records the open offer to the head, which knows that it is its turn, and appoints standbys.
local function record_offer(queue, open, standbys, head)
  redis.pcall('SET', open, id(head) .. ' ' .. string.format('%.0f', clock_ms()), 'PX', 60000)
  appoint_standbys(queue, standbys, head)
end

-- The lock is free: wakes the first waiter that is still alive.
local function offer(queue, open, standbys)
  while true do
    local head = waiters(queue, 0, 0)[1]
    if not head then return redis.pcall('DEL', open, standbys) end
    local heard = wake(head, 'go')
    if heard == nil then return end
    if heard > 0 then return record_offer(queue, open, standbys, head) end
    if not drop(queue, head) then return end
  end
end
