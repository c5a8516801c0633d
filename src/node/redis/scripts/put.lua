-- Placed before the scripts that set an exclusive lock.
local function put(value, ttl) call('SET', KEY, value, 'PX', ttl) end
