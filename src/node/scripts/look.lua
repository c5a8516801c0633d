-- Tells what is at the key and what its fence counter says, and changes nothing.
-- KEYS[1] the lock, KEYS[2] its fence counter
-- {'free' | {'held', type, length, first KiB, PTTL}, fence}; fence is '' if there is none
local fence = redis.pcall('GETRANGE', KEYS[2], 0, 19)
return {peek(KEYS[1]) or 'free', type(fence) == 'string' and fence or ''}
