-- Reads whole documents of collections, one collection after the other.
--
-- HSCAN loads whole values, and they may be large. So the script takes a few documents at a
-- time, and fewer after a large one.
--
-- KEYS  1 state, then per collection: documents
-- ARGV  1 the expected version, 2 the cursor in the first collection, 3 how many documents the
--       first HSCAN takes, 4 stop after returning this many documents, 5 stop after returning
--       this many bytes of values, then per collection: the field of the state that holds its
--       sizes
-- Returns  {1, server, done, cursor, take, n, {id, value, ...}, ...}: server names the process
--          that knows the cursor ('' if unknown); done collections were read to their end, and
--          the cursor is in the next one; take is how many documents the next HSCAN takes; each
--          list is of documents of the n-th collection. Or {0} the shard is at another
--          version; {-2, n} the n-th collection does not have as many documents as the last
--          commit left, so some may be missing.
local call, state = redis.call, KEYS[1]
local version, cursor, take = ARGV[1], ARGV[2], tonumber(ARGV[3])
local documents, bytes, first_size = tonumber(ARGV[4]), tonumber(ARGV[5]), 6
local most_at_once = 64
if call('HGET', state, 'version') ~= version then
	return {0}
end
local info = redis.pcall('INFO', 'server')
local server = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
local done, reply, last = 0, {1, server, 0, cursor, take}, 5
for n = 1, #KEYS - 1 do
	local docs = KEYS[n + 1]
	local size = call('HGET', state, ARGV[first_size + n - 1]) or '0'
	if string.match(size, '^%d+') ~= tostring(call('HLEN', docs)) then
		return {-2, n}
	end
	repeat
		local page = call('HSCAN', docs, cursor, 'COUNT', take)
		local values, largest = page[2], 1
		for i = 2, #values, 2 do
			local length = #values[i]
			bytes = bytes - length
			if length > largest then
				largest = length
			end
		end
		if #values > 0 then
			reply[last + 1], reply[last + 2] = n, values
			last = last + 2
		end
		cursor = page[1]
		documents = documents - #values / 2
		take = math.max(1, math.min(2 * take, most_at_once, math.floor(bytes / largest)))
	until cursor == '0' or documents <= 0 or bytes <= 0
	if cursor ~= '0' then
		break
	end
	done = n
	if documents <= 0 or bytes <= 0 then
		break
	end
end
reply[3], reply[4], reply[5] = done, cursor, take
return reply
