-- Placed behind identity.lua, fence.lua and put.lua, before all that a request for an exclusive lock needs only where the lock is
-- held or waited for: most requests end here, and the server need not execute the rest. Arguments and reply: enter.lua.
local is_free = waiter == '' and not young and not replica and call('TYPE', KEY).ok == 'none'
-- An error is no waiter: a lock is taken even if an ACL forbids its queue.
if is_free and #try('ZRANGE', KEYS[5], 0, 0) == 0 then
  local fence = next_fence()
  if fence then put(ARGV[1], ARGV[2]) end
  return {fence and {'granted', fence, '0'} or {'exhausted'}, server, {-1, whole(micros), ''}}
end
