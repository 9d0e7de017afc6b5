-- Reads the members of a collection's indexes that come after places, the lowest scores first, and
-- no document. It passes over those that are at or under the cuts, as they are expired.
--
-- KEYS  1 state, 2 config, 3 documents, 4 inherit, 5 own
-- ARGV  1 collection, 2 the most members of each index, then per index: the cut, and the place: a
--       score ('' for the beginning) and an id
-- Returns  {head, size of inherit, size of own, {id, score, ...} of inherit, the same of own}
local state, config, docs, inherit, own = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local collection, most = ARGV[1], tonumber(ARGV[2])
local reply_head = head(state, config, collection, docs)
local function members(key, first)
	local cut, score, id = ARGV[first], ARGV[first + 1], ARGV[first + 2]
	local rank = rank_after(key, cut, score, id)
	return redis.call('ZRANGE', key, rank, rank + most - 1, 'WITHSCORES')
end
return {reply_head, redis.call('ZCARD', inherit), redis.call('ZCARD', own), members(inherit, 3), members(own, 6)}
