-- Makes a waiter that got the lock at once the newest one, so that older ones do not run after it.
-- KEYS[7] and ARGV[1] as in newest.lua, ARGV[2] life of KEYS[7] in ms, ARGV[3] '1' if this is the only node
-- {'announced'} | {'superseded', waiter}
local newer = supersede(ARGV[1], ARGV[2], ARGV[3])
return newer and {'superseded', newer} or {'announced'}
