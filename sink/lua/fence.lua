-- Takes a partition over: gives it a new version, so that whoever computed from
-- the old one is refused, and sets other fields of its state.
--
-- KEYS  1 state
-- ARGV  1 the version expected ('' if there is to be no state), then pairs of
--       field and value to set ("version" among them)
-- Returns  1 done, 0 the version is another.
local state, expected = KEYS[1], ARGV[1]
if (redis.call('HGET', state, 'version') or '') ~= expected then
	return 0
end
if expected ~= '' then
	redis.call('HDEL', state, '') -- a Redis that is full lets no other write be the first: see commit.lua
end
redis.call('HSET', state, unpack(ARGV, 2))
return 1
