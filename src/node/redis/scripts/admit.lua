-- Placed behind members.lua, before the scripts that take a place or extend a lease.

-- Returns index, fence and value of a member that is not over.
local function member(token)
  local ends = call('ZSCORE', LEASES, token)
  if ends and tonumber(ends) >= now then return entry(token) end
end

local function write(token, index, fence, value)
  call('HSET', HOLDERS, token, index .. ' ' .. fence .. ' ' .. value)
end

-- Whether each member has its lease and its entry. If a server evicted either, members are unknown, and none joins them.
local function intact(kind)
  local members = call('ZCARD', LEASES)
  return members > 0 and call('HLEN', HOLDERS) == members * (kind == 's' and 1 or 2)
end

-- Extends a member's lease. PEXPIREAT comes first: a server that is out of memory does it, and then the rest of this script.
local function extend(token, ttl)
  local ends = now + ttl
  call('PEXPIREAT', KEY, whole(math.max(ends, tonumber(last_end()) or 0)))
  call('ZADD', LEASES, whole(ends), token)
  span()
end

-- Makes the token a member, in the place of one that it has. The first one under a new marker voids what is left of others.
local function admit(seen, kind, nodes, ttl, token, index, fence, value)
  local _, _, longest = marker(seen)
  local text = 'rlock ' .. kind .. ' n=' .. nodes .. ' ttl='
  if not seen then
    call('DEL', LEASES, HOLDERS)
    call('SET', KEY, text .. ttl, 'PX', ttl)
  elseif tonumber(ttl) > tonumber(longest) then
    call('SET', KEY, text .. ttl, 'KEEPTTL')
  end
  if seen and entry(token) then take_out(token) end
  write(token, index, fence, value)
  if index ~= '0' then call('HSET', HOLDERS, index, token) end
  extend(token, ttl)
end
