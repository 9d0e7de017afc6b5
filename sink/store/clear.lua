-- Removes keys of a shard or, if it gets none, its state. Then it sets fields of the state.
--
-- KEYS  1 state, then the keys to remove
-- ARGV  1 the expected version ('' if there must be no state), then pairs of field and value
-- Returns  1 done, 0 the shard is at another version. Or an error, before anything is
--          removed, while the slot is being moved to another master: see commit.lua.
local state, expected = KEYS[1], ARGV[1]
local first_key, first_field = 2, 2
if (redis.call('HGET', state, 'version') or '') ~= expected then
	return 0
end
redis.call('EXISTS', state .. '?')
if #KEYS >= first_key then
	redis.call('UNLINK', unpack(KEYS, first_key))
else
	redis.call('UNLINK', state)
end
if #ARGV >= first_field then
	redis.call('HSET', state, unpack(ARGV, first_field))
end
return 1
