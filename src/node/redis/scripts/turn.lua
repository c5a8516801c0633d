-- Stands between queue.lua and acquire.lua, which alone asks whose turn it is.
-- The lock is free: whose turn is it before this waiter's, and how many ms are left to go? Nil if nobody's.
-- Whoever is gone is taken out. A head that was told and did not go is taken out with all behind it from its host, which
-- has perhaps stopped as a whole; they are told, so that whoever lives comes back to the place that its ticket gives it.
-- If this waiter is from there too, the host has not stopped, and those between the two keep their places.
-- An offer from the future counts as old: the clock was set back since.
local function before(queue, open, watched, waiter)
  while true do
    local head = waiters(queue, 0, 0)[1]
    if not head or head == waiter then return nil end
    local there = redis.pcall('PUBSUB', 'NUMSUB', channel(head))
    if there.err then return nil end
    if there[2] == 0 then
      if not drop(queue, head) then return nil end
    else
      local told = redis.pcall('GET', open)
      local who, since = string.match(type(told) == 'string' and told or '', '^(%S+) (%d+)$')
      local waited = who == id(head) and milliseconds() - tonumber(since) or nil
      if waited and (waited >= STALLED or waited < 0) then
        for rank, other in ipairs(waiters(queue, 0, -1)) do
          if other ~= waiter and (rank == 1 or host(other) == host(head) and host(waiter) ~= host(head)) then
            if not drop(queue, other) then return nil end
            tell(other, 'go')
          end
        end
      else
        if not waited then offer(queue, open, watched) end
        local now = waiters(queue, 0, 0)[1]
        if now and now ~= waiter then return now, STALLED - (waited or 0) end
      end
    end
  end
end
