-- Placed in put.lua's place where the lock has the form of Redisson's (--as redisson): its clients wait for it then.
-- Their own hash has a field 'UUID:THREAD'. 'mode' keeps those out that want a read-write lock of this name.
local function put(value, ttl)
  -- These fail before anything is set where the user may not: a hash without an end would stay for ever.
  call('HEXISTS', KEY, 'rlock')
  call('HSTRLEN', KEY, 'rlock')
  call('HGET', KEY, 'rlock')
  call('PEXPIRE', KEY, ttl)
  call('HSET', KEY, match(value, '^%S+') .. ':1', 1, 'mode', 'rlock', 'rlock', value)
  call('PEXPIRE', KEY, ttl)
end
