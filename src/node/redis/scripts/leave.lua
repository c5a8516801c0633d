-- Placed behind members.lua, before release.lua, where the holder is a member.

-- Ends the token's lock, if it has it. Returns whether it did, and what is at the key then.
local function give_up(token)
  local released = false
  if marker(peek()) then
    sweep()
    released = entry(token) and true
    if released then
      take_out(token)
      span()
    end
  end
  return released, peek()
end
