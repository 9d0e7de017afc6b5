-- Counts ranges of a collection's two indexes.
--
-- KEYS  1 state, 2 config, 3 documents, 4 inherit, 5 own
-- ARGV  1 collection, 2 number of ranges n, then n of: index (4 or 5), lowest
--       and highest score as ZCOUNT takes them
-- Returns  {head, {count, ...}, size of inherit, size of own}: head as in get.lua.
local state, config, docs = KEYS[1], KEYS[2], KEYS[3]
local collection, n = ARGV[1], tonumber(ARGV[2])
local head = {
	redis.call('TIME'),
	redis.call('HMGET', state, 'version', 'format', 'partitions', 'log', 'offset', 'watermark', 'rebuild', 'size:' .. collection, 'configs'),
	redis.call('HGET', config, collection),
	redis.call('HLEN', docs),
	redis.call('HLEN', config),
}
local counts = {}
for i = 1, n do
	local at = 3 * i
	counts[i] = redis.call('ZCOUNT', KEYS[tonumber(ARGV[at])], ARGV[at + 1], ARGV[at + 2])
end
return {head, counts, redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[5])}
