-- Reads the lock's holders, its fence counter and its queue. Changes nothing.
-- KEYS[1] the lock, KEYS[2] its fence counter, KEYS[3] its members' leases, KEYS[4] its members,
--   KEYS[5] its queue, KEYS[8] the mark of a success
-- ARGV[1] number of waiters wanted, ARGV[2] most bytes of them
-- ARGV[3] number of members wanted, ARGV[4] most bytes of them, ARGV[5] token of a member that is wanted first, or empty
-- {seen, members, fence, {waiter, ticket, waiter, ticket, …}, more, mark}
--   seen is {'held', type, length, first KiB, PTTL} | {}, and of a marker one number more: how many members there are
--   members is {token, ms left, entry, token, ms left, entry, …}
--   fence is empty if there is none, more is 1 if not all waiters are returned
--   mark is {value, ms left} | {}
local fence = try('GETRANGE', KEYS[2], 0, 19)
local wanted, room = tonumber(ARGV[1]), tonumber(ARGV[2])
local waiters, more = {}, 0
if wanted > 0 then
  local found = try('ZRANGE', KEYS[5], 0, wanted, 'WITHSCORES')
  for i = 1, found.err and 0 or #found, 2 do
    room = room - #found[i] - #found[i + 1]
    if i > 2 * wanted or room < 0 then
      more = 1
      break
    end
    waiters[i], waiters[i + 1] = found[i], found[i + 1]
  end
end

local seen, members = peek(), {}
if marker(seen) then
  local tokens = call('ZRANGEBYSCORE', LEASES, whole(now), '+inf')
  local space = tonumber(ARGV[4])
  seen[6] = #tokens
  insert(tokens, 1, ARGV[5])
  for rank, token in ipairs(tokens) do
    if rank == 1 or token ~= ARGV[5] then
      local found = member(token) and call('HGET', HOLDERS, token)
      if found then
        space = space - #found
        if #members >= 3 * ARGV[3] or space < 0 then break end
        insert(members, token)
        insert(members, call('ZSCORE', LEASES, token) - now)
        insert(members, found)
      end
    end
  end
end
local done = try('GETRANGE', KEYS[8], 0, 1023)
local mark = type(done) == 'string' and done ~= '' and {done, call('PTTL', KEYS[8])} or {}
return {seen or {}, members, type(fence) == 'string' and fence or '', waiters, more, mark}
