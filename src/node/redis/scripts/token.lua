-- Placed before the scripts that compare a token with what is stored.

-- Whether a text is the value of this token. The whole token and the space behind it are compared.
local function is_of(text, token) return string.sub(text, 1, #token + 1) == token .. ' ' end

-- Whether what peek() returned is the value of this token.
local function ours(seen, token) return seen and seen[2] == 'string' and is_of(seen[4], token) end

-- Whether what peek() returned is the tombstone in the place of this token's lock.
local function broken(seen, token) return ours(seen, 'broken ' .. token) end
