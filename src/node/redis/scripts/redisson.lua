-- Placed before the scripts that delete a lock in the form of Redisson's.

-- Its clients wait for a word on one of these channels, on the second one in a cluster of Redis 7.
local function tell_redisson()
  local waited = 'redisson_lock__channel:' .. (string.find(KEY, '{', 1, true) and KEY or '{' .. KEY .. '}')
  for _, publish in ipairs({'PUBLISH', 'SPUBLISH'}) do try(publish, waited, '0') end
end
