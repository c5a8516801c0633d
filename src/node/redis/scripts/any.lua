-- Placed behind members.lua, before the scripts that end a lock of any kind.

-- Ends the token's lock, if it has it. A parked lock is its only if `ends_parked`: its run is over. Returns whether it did, what
-- is at the key then, and the answer if it did not.
local function give_up(token, ends_parked)
  local seen = peek()
  if marker(seen) then
    sweep()
    local _, _, value = entry(token)
    if not value or not ends_parked and is_of(value, 'parked ' .. token) then return false, peek(), nil end
    take_out(token)
    span()
    return true, peek()
  end
  local is_ours = ours(seen, token) or broken(seen, token) or ends_parked and parked(seen, token)
  if not is_ours then return false, seen, seen end
  delete()
  return true, nil
end
