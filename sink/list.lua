-- Reads documents of a collection in the order of its indexes, from a place on: first those that
-- inherit the TTL, then those with a TTL of their own. It passes over those that are at or under
-- the cuts, as they are expired.
--
-- A document is loaded only to be returned, but for the one that is too much for the page.
--
-- KEYS  1 state, 2 config, 3 documents, 4 inherit, 5 own
-- ARGV  1 collection, 2 the cut of inherit, 3 the cut of own,
--       4 the index in which to begin (1 inherit, 2 own), 5 after this score ('' for the beginning),
--       6 and this id, 7 what the ids begin with,
--       8 stop after returning this many documents, 9 stop before returning more than this many
--         bytes of bodies and ids, but (10) if 1 return one document in any case,
--       11 stop after this many bytes of values, 12 stop after examining this many members,
--       13 whether to return headers alone (1)
-- Returns  {head, size of inherit, size of own, index, score, id, left, examined, {id, value, ...}}:
--          the place is that of the last member that was examined; left is 1 if members come after
--          it, 2 if the page is full, else 0. A value is false if the index has a member that is
--          not a document.
local state, config, docs = KEYS[1], KEYS[2], KEYS[3]
local collection, cuts, prefix = ARGV[1], {ARGV[2], ARGV[3]}, ARGV[7]
local index, score, id = tonumber(ARGV[4]), ARGV[5], ARGV[6]
local want, room, one = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10] == '1'
local load, most, headers = tonumber(ARGV[11]), tonumber(ARGV[12]), ARGV[13] == '1'
local at_once = 100
local reply_head = head(state, config, collection, docs)
local inherit_size, own_size = redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[5])
local found, n, examined = {}, 0, 0

local function reply(left)
	return {reply_head, inherit_size, own_size, index, score, id, left, examined, found}
end
while true do
	local key = KEYS[3 + index]
	local rank = math.max(rank_after(key, score, id), redis.call('ZCOUNT', key, '-inf', cuts[index]))
	repeat
		local take = prefix ~= '' and at_once or math.max(1, math.min(want, at_once))
		local members = redis.call('ZRANGE', key, rank, rank + take - 1, 'WITHSCORES')
		for i = 1, #members, 2 do
			if want <= 0 then
				return reply(2)
			elseif load <= 0 or most <= 0 then
				return reply(1)
			end
			local next_id = members[i]
			if prefix == '' or string.sub(next_id, 1, #prefix) == prefix then
				local value = redis.call('HGET', docs, next_id)
				if value then
					local size = #next_id + #value - (string.byte(value, 1) or 0)
					if size > room and not one then
						return reply(2)
					end
					one, room, load, want = false, room - size, load - #value, want - 1
					if headers then
						value = string.sub(value, 1, string.byte(value, 1))
					end
				end
				found[n + 1], found[n + 2] = next_id, value
				n = n + 2
			end
			id, score = next_id, members[i + 1]
			examined, most = examined + 1, most - 1
		end
		rank = rank + #members / 2
	until #members == 0
	if index == 2 then
		return reply(0)
	end
	index, score, id = 2, '', ''
end
