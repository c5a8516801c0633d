-- Takes the exclusive lock if it is free and no other waiter's turn comes first. Arguments and reply: enter.lua.
if seen then return not_now(crowd(seen, ARGV[10])) end
if young then return not_now({'restarted'}) end
local ahead, left = before('x', 1, true)
if ahead then return reply({'turn', ahead, left}) end
local fence = next_fence()
if not fence then return reply({'exhausted'}) end
put(ARGV[1], ARGV[2])
if waiter ~= '' then drop(waiter) end
return reply({'granted', fence, '0'})
