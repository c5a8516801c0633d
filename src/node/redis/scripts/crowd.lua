-- Placed behind marker.lua, before both requests for a lock.

-- Adds to what peek() returned of a marker: the number of members, whether one of `tokens` is a member, and its entry, else
-- that of any member.
local function crowd(seen, tokens)
  if not marker(seen) then return seen end
  local shown, meant = call('ZRANGE', LEASES, 0, 0)[1], 0
  for token in string.gmatch(tokens, '%S+') do
    if call('ZSCORE', LEASES, token) then shown, meant = token, 1 end
  end
  seen[6], seen[7], seen[8] = call('ZCARD', LEASES), meant, shown and call('HGET', HOLDERS, shown) or ''
  return seen
end
