-- Placed between queue.lua and acquire.lua, the only script that asks whose turn it is.
-- The lock is free: returns the waiter whose turn comes before this one's and the ms that it has left, or nil.
-- 1. A head that does not listen any more is removed.
-- 2. A head that was offered the lock a second ago and has not taken it is removed. So are all waiters behind it from its
--    host, which may have stopped as a whole. They are told, so that a live one comes back to the place that its ticket gives
--    it. If this waiter is from that host too, the host has not stopped, and the head alone is removed.
-- 3. An offer from the future counts as old: the clock was set back since.
local function before(queue, open, standbys, waiter)
  while true do
    local head = waiters(queue, 0, 0)[1]
    if not head or head == waiter then return nil end
    local alive = redis.pcall('PUBSUB', 'NUMSUB', channel(head))
    if alive.err then return nil end
    if alive[2] == 0 then
      if not drop(queue, head) then return nil end
    else
      local told = redis.pcall('GET', open)
      local who, since = string.match(type(told) == 'string' and told or '', '^(%S+) (%d+)$')
      local waited = who == id(head) and clock_ms() - tonumber(since) or nil
      if waited and (waited >= STALLED or waited < 0) then
        for rank, other in ipairs(waiters(queue, 0, -1)) do
          if other ~= waiter and (rank == 1 or host(other) == host(head) and host(waiter) ~= host(head)) then
            if not drop(queue, other) then return nil end
            wake(other, 'go')
          end
        end
      else
        if not waited then offer(queue, open, standbys) end
        local now = waiters(queue, 0, 0)[1]
        if now and now ~= waiter then return now, STALLED - (waited or 0) end
      end
    end
  end
end
