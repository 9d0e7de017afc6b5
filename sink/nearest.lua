-- Reads the members of a collection's indexes that come after places, the lowest scores first, and
-- no document. It passes over those that are at or under the cuts, as they are expired.
--
-- KEYS  1 state, 2 config, 3 documents, 4 inherit, 5 own
-- ARGV  1 collection, 2 the most members of each part, then for each part of an index: the index (1 inherit, 2 own),
--       the cut, and the place: a score ('' for the beginning) and an id
-- Returns  {head, size of inherit, size of own, for each part {id, score, ...}}: it may go on into the next part
local state, config, docs, inherit, own = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local collection, most = ARGV[1], tonumber(ARGV[2])
local reply_head = head(state, config, collection, docs)
local reply = {reply_head, redis.call('ZCARD', inherit), redis.call('ZCARD', own)}
for at = 3, #ARGV, 4 do
	local key, cut, score, id = KEYS[3 + ARGV[at]], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
	local rank = math.max(rank_after(key, score, id), redis.call('ZCOUNT', key, '-inf', cut))
	reply[#reply + 1] = redis.call('ZRANGE', key, rank, rank + most - 1, 'WITHSCORES')
end
return reply
