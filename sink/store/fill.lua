-- Writes documents into a shard that is being filled, with their entries in the indexes.
--
-- KEYS  1 state, then per change: documents, inherit, own
-- ARGV  1 the expected version, 2 the version to set, then per change:
--         what comes first ('drop': remove everything; 'move': rename everything to the keys of
--         the next change, which do not exist; '': nothing),
--         and five lists, each with its length in front:
--         documents to put (id, value), which of them go to inherit (score, id), to own (score, id),
--         headers to renew of documents that exist (id, header, 1 inherit or 2 own, score), ids to
--         remove
-- Returns  1 done, 0 the shard is at another version. Or an error, before anything is
--          written, while the slot is being moved to another master: see commit.lua of store.
local call, state, version = redis.call, KEYS[1], ARGV[1]
if call('HGET', state, 'version') ~= version then
	return 0
end
call('EXISTS', state .. '?')
local at = 3

-- Runs a command on the list that begins at from, of entries of width values, and has its length
-- in front. Returns the position after it.
local function on(command, key, from, width)
	local last = from + width * tonumber(ARGV[from - 1]) - 1
	while from <= last do
		local to = math.min(from + 3999, last) -- unpack takes fewer than 5,113 values
		call(command, key, unpack(ARGV, from, to))
		from = to + 1
	end
	return last + 1
end

-- Removes the ids from an index that are in a list of members for the other one (score, id).
local function leave(index, from)
	local last, ids = from + 2 * tonumber(ARGV[from - 1]) - 1, {}
	for i = from + 1, last, 2 do
		ids[#ids + 1] = ARGV[i]
		if #ids == 4000 or i == last then
			call('ZREM', index, unpack(ids))
			ids = {}
		end
	end
end

for k = 2, #KEYS, 3 do
	local docs, inherit, own = KEYS[k], KEYS[k + 1], KEYS[k + 2]
	local first = ARGV[at]
	if first == 'drop' then
		call('UNLINK', docs, inherit, own)
	elseif first == 'move' then
		for i = k, k + 2 do
			if call('EXISTS', KEYS[i]) == 1 then
				call('RENAME', KEYS[i], KEYS[i + 3])
			end
		end
	end
	local in_inherit, in_own = call('EXISTS', inherit) == 1, call('EXISTS', own) == 1
	local put_inherit = on('HSET', docs, at + 2, 2) + 1
	local put_own = on('ZADD', inherit, put_inherit, 2) + 1
	at = on('ZADD', own, put_own, 2)
	if in_inherit then
		leave(inherit, put_own)
	end
	if in_own then
		leave(own, put_inherit)
	end
	local first_renew = at + 1
	at = first_renew + 4 * tonumber(ARGV[at])
	for i = first_renew, at - 1, 4 do
		local id, header, index, score = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
		local old = call('HGET', docs, id)
		if old then
			call('HSET', docs, id, header .. string.sub(old, string.byte(old, 1) + 1))
			local to, from = inherit, own
			if index == '2' then
				to, from = own, inherit
			end
			call('ZADD', to, score, id)
			call('ZREM', from, id)
		end
	end
	local first_remove = at + 1
	on('HDEL', docs, first_remove, 1)
	on('ZREM', inherit, first_remove, 1)
	at = on('ZREM', own, first_remove, 1)
end
call('HSET', state, 'version', ARGV[2])
return 1
