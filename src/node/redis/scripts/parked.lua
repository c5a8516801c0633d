-- Placed behind token.lua, before the scripts that know a lock after its command has ended.

-- Whether what peek() returned is this token's.
local function parked(seen, token) return ours(seen, 'parked ' .. token) end
