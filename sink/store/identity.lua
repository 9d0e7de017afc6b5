-- Reads the identity of this Redis, and makes it if there is none.
--
-- KEYS  1 identity
-- ARGV  1 an identity that no other Redis has
-- Returns  the identity
local identity = KEYS[1]
local new = ARGV[1]
local id = redis.call('HGET', identity, 'id')
if not id then
	redis.call('HSET', identity, 'id', new)
	id = new
end
return id
