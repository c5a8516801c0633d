-- Placed behind queue.lua and marker.lua, before the scripts that free a lock or a place.

-- Offers what is free to the next waiters. `me`: a waiter that knows that it is its turn.
local function pass_on(seen, me)
  local group = marker(seen)
  if group then
    offer(group, places(group) - call('ZCARD', LEASES), me)
  elseif not seen then
    offer(nil, nil, me)
  end
end
