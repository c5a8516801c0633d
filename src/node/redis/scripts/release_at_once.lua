-- Placed behind token.lua, before all that the release of an exclusive lock needs only where there are waiters, or where the lock is
-- not the token's: most releases end here, and the server need not execute the rest. Arguments and reply: release.lua.
local is_ours = ARGV[1] ~= '' and is_of(tostring(try('GETRANGE', KEY, 0, #ARGV[1])), ARGV[1])
-- An error is no waiter: a lock is released even if an ACL forbids its queue.
if is_ours and ARGV[2] == '' and #try('ZRANGE', KEYS[5], 0, 0) == 0 then
  call('DEL', KEY)
  try('DEL', KEYS[6])
  return {'released'}
end
