-- Removes keys that were set aside, if their shard is whole.
--
-- KEYS  1 state of the shard, then the keys to remove
-- ARGV  none
-- Returns  1 done, 0 the shard has no state, or lacks documents, or is refused.
local state, first_key = KEYS[1], 2
local left = redis.call('HMGET', state, 'version', 'rebuild')
local version, rebuild = left[1], left[2]
if not version or (rebuild or '') ~= '' then
	return 0
end
redis.call('UNLINK', unpack(KEYS, first_key))
return 1
