-- Placed behind members.lua, before release.lua, where a member's command has ended and it stays. Arguments: keep.lua; a
-- member leaves no mark.

-- Ends or parks the token's lock, if it has it. Returns whether it did, and what is at the key then.
local function give_up(token)
  if not marker(peek()) then return false, peek() end
  sweep()
  local kind, nodes, longest = marker(peek())
  local index, fence, value = entry(token)
  if index and (ARGV[9] ~= '' or not is_of(value, 'broken ' .. token)) then
    local ends = now + ARGV[6]
    -- A server that is out of memory does what follows a write that needs none.
    call('PEXPIREAT', KEY, whole(math.max(ends, last_end())))
    call('ZADD', LEASES, whole(ends), token)
    try('HSET', HOLDERS, token, index .. ' ' .. fence .. ' ' .. ARGV[7])
    if tonumber(ARGV[8]) > tonumber(longest) then
      try('SET', KEY, 'rlock ' .. kind .. ' n=' .. nodes .. ' ttl=' .. ARGV[8], 'KEEPTTL')
    end
    span()
    tell_end()
  elseif index then
    take_out(token)
    span()
  end
  return index and true, peek()
end
