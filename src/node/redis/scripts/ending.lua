-- Placed behind queue.lua, before the scripts that park a lock.

-- Tells the first waiter to look when the lock will end: the end that it knows is that of a lease.
local function tell_end()
  local first = waiters(0, 0)[1]
  if first then wake(first, 'go') end
end
