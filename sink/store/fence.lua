-- Gives a shard a new version, so that commits by its former owner fail, and sets other
-- fields of its state.
--
-- KEYS  1 state
-- ARGV  1 the expected version ('' if there must be no state), then pairs of field and value
--       to set ("version" among them)
-- Returns  1 done, 0 the shard is at another version.
local state, expected, first_field = KEYS[1], ARGV[1], 2
if (redis.call('HGET', state, 'version') or '') ~= expected then
	return 0
end
if expected ~= '' then
	redis.call('HDEL', state, '') -- a Redis that is full would refuse HSET as the first write: see commit.lua
end
redis.call('HSET', state, unpack(ARGV, first_field))
return 1
