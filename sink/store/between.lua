-- Finds the documents of a collection that lie in some slices of its indexes: after a place, up to
-- a score.
--
-- KEYS  1 state, 2 documents, 3 inherit, 4 own
-- ARGV  1 the expected version, 2 the field of the state that holds the size of the collection,
--       3 the most documents to return, 4 stop after returning this many bytes of values, then
--       for each slice: 5 the index (1 inherit, 2 own), 6 after this score, 7 and this id, 8 up to
--       this score
-- Returns  {1, time, for each slice: {next, ids, values}}: next is the lowest score that comes after
--          what was returned, false if there is none; a value is false if the document does not
--          exist. Or {0} the shard is at another version; {-2} the collection is not as the
--          last commit left it, so that documents may be missing.
local call, state, docs = redis.call, KEYS[1], KEYS[2]
local expected, size_field = ARGV[1], ARGV[2]
local limit, bytes, first_slice = tonumber(ARGV[3]), tonumber(ARGV[4]), 5
local no_cut = '-9007199254740992'

local known = call('HMGET', state, 'version', size_field)
if known[1] ~= expected then
	return {0}
end
local size = call('HLEN', docs) .. ' ' .. call('ZCARD', KEYS[3]) .. ' ' .. call('ZCARD', KEYS[4])
if size ~= (known[2] or '0 0 0') then
	return {-2}
end

local reply = {1, call('TIME')}
for at = first_slice, #ARGV, 4 do
	local key, score, id, up_to = KEYS[2 + ARGV[at]], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
	local rank = rank_after(key, no_cut, score, id)
	local members = call('ZRANGE', key, rank, rank + limit, 'WITHSCORES') -- one more than may be returned
	local ids, values, next_score = {}, {}, false
	for i = 1, #members, 2 do
		if limit <= 0 or bytes <= 0 or tonumber(members[i + 1]) > up_to then
			next_score = members[i + 1]
			break
		end
		local value = call('HGET', docs, members[i])
		ids[#ids + 1], values[#values + 1] = members[i], value
		limit, bytes = limit - 1, bytes - (value and #value or 0)
	end
	reply[#reply + 1] = {next_score, ids, values}
end
return reply
