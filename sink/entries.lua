-- Reads entries of an index in order, from a place on, and the documents that they are of.
--
-- KEYS  1 state, 2 config, 3 documents, 4 the index
-- ARGV  1 collection, 2 the field of the state that has the number of entries, 3 the field that says what is being
-- made,
--       4 the command that reads a range: ZRANGEBYLEX or ZREVRANGEBYLEX, 5 the most entries of a range,
--       6 stop after reading this many entries, 7 stop after this many bytes of values; 0 reads no values,
--       then for each range: where it begins and where it ends, as the command takes them
-- Returns  {head, what is being made, number of entries after the last commit, number of entries, left,
--           {member, value, ...}}: left is 1 if it has stopped before the end of a range, else 0. A value is false if
--           the entry is not of a document, and if no values are read.
local state, config, docs, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local collection, entries_field, making_field, command = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local of_range, most, load = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local first_range, at_once, reads = 8, 100, load > 0
local fields = redis.call('HMGET', state, making_field, entries_field)
local reply = {head(state, config, collection, docs), fields[1], fields[2], redis.call('ZCARD', index), 0, {}}
local left, found = 5, 6

-- Returns the id of a member: what is behind the kind, and behind a boolean, a number, or a text and its end. See
-- package entries.
local text, behind = 4, {[0] = 2, [1] = 2, [2] = 3, [3] = 10}
local function id_of(member)
	local kind = string.byte(member, 1)
	return string.sub(member, kind == text and string.find(member, '\0', 2, true) + 1 or behind[kind])
end

local n = 0
for at = first_range, #ARGV, 2 do
	local from, to, rest = ARGV[at], ARGV[at + 1], of_range
	while rest > 0 do
		local take = math.min(rest, most, at_once)
		if take <= 0 then
			reply[left] = 1
			return reply
		end
		local members = redis.call(command, index, from, to, 'LIMIT', 0, take)
		for i = 1, #members do
			local member = members[i]
			local value = reads and redis.call('HGET', docs, id_of(member))
			reply[found][n + 1], reply[found][n + 2] = member, value
			n, most, rest = n + 2, most - 1, rest - 1
			load = load - (value and #value or 0)
			if reads and load <= 0 then
				reply[left] = 1
				return reply
			end
		end
		if #members < take then
			break
		end
		from = '(' .. members[#members]
	end
end
return reply
