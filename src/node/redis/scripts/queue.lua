-- Stands before the scripts that know of those who wait.
-- The queue is a sorted set: waiter → ticket, the smallest first. A waiter is 'ID HOST PID SINCE', and listens on a channel of
-- its own, so that PUBLISH and NUMSUB tell whether it is still there. The open offer is 'ID MS': who was told to go, when.
-- The watch is 'MS' and a line for each who was told to look whether the head goes.
-- All of it is done without regard to errors: a lock is taken and given back though an ACL forbids its queue.
local STALLED = 1000

local function id(waiter) return string.match(waiter, '^%S*') end
local function host(waiter) return string.match(waiter, '^%S* (%S*)') end
local function channel(waiter) return 'rlock:wake:' .. id(waiter) end

local function milliseconds()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Those in the queue from one rank to another.
local function waiters(queue, from, to)
  local found = redis.pcall('ZRANGE', queue, from, to)
  return found.err and {} or found
end

-- Whether it could be taken out: else whoever goes on would go on for ever.
local function drop(queue, waiter) return type(redis.pcall('ZREM', queue, waiter)) == 'number' end

-- How many heard it: 0 is a waiter that is gone, nil that we may not ask.
local function tell(waiter, word)
  local heard = redis.pcall('PUBLISH', channel(waiter), word)
  return type(heard) == 'number' and heard or nil
end

-- Sees to it that somebody behind the head looks in a second whether it went: three are told, unless two who were told within
-- the last second still wait, for they look again as long as it is somebody's turn. From other hosts if there are any, and not
-- all side by side, since what stopped the head has perhaps stopped its neighbours; from the end, since they stay longest.
local function watch(queue, watched, head)
  local now, record = milliseconds(), redis.pcall('GET', watched)
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
        if tell(waiter, 'watch') ~= 0 then told[#told + 1] = waiter end
      end
    end
  end
  redis.pcall('SET', watched, string.format('%.0f', now) .. '\n' .. table.concat(told, '\n'), 'PX', STALLED)
end

-- It is the turn of the head, which knows it; others see to it that it goes.
local function grant_turn(queue, open, watched, head)
  redis.pcall('SET', open, id(head) .. ' ' .. string.format('%.0f', milliseconds()), 'PX', 60000)
  watch(queue, watched, head)
end

-- The lock is free: tells the first who is still there to go.
local function offer(queue, open, watched)
  while true do
    local head = waiters(queue, 0, 0)[1]
    if not head then return redis.pcall('DEL', open, watched) end
    local heard = tell(head, 'go')
    if heard == nil then return end
    if heard > 0 then return grant_turn(queue, open, watched, head) end
    if not drop(queue, head) then return end
  end
end
