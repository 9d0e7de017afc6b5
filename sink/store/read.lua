-- Reads the documents that a batch of messages touches.
--
-- KEYS  1 state, then per collection: documents
-- ARGV  1 read no more whole after this many bytes, then per collection: name, number of ids whose
--       header is enough, number of ids to read whole, then these ids in this order
-- Returns  {version, 0, value, ...}: a value is false if the document does not exist, and without
--          its body if its header is enough or it is no more read whole; or
--          {version, n}: the n-th collection does not have as many documents as the last
--          commit left, so a document that does not exist may have been lost.
local state, first_docs = KEYS[1], 2
local bytes, first_arg = tonumber(ARGV[1]), 2
local at_once = 4000 -- unpack takes fewer than 5,113 values
local whole_at_once = 32 -- which may be large
local fields = {'version'}
local at = first_arg
for k = first_docs, #KEYS do
	local name, headers, whole = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
	fields[k] = 'size:' .. name
	at = at + 3 + headers + whole
end
local left = redis.call('HMGET', state, unpack(fields, 1, math.min(#fields, at_once)))
for from = 1 + at_once, #fields, at_once do
	local more = redis.call('HMGET', state, unpack(fields, from, math.min(#fields, from + at_once - 1)))
	for i = 1, #more do
		left[#left + 1] = more[i]
	end
end
local version = left[1]
local reply, n = {version, 0}, 2
at = first_arg
for k = first_docs, #KEYS do
	local docs, headers, whole = KEYS[k], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
	if string.match(left[k] or '0', '^%d+') ~= tostring(redis.call('HLEN', docs)) then
		return {version, k - first_docs + 1}
	end
	at = at + 3
	local first_whole = at + headers
	local last = first_whole + whole - 1
	while at <= last do
		local to = math.min(at + at_once, first_whole) - 1
		if at >= first_whole then
			to = math.min(at + whole_at_once - 1, last)
		end
		local values = redis.call('HMGET', docs, unpack(ARGV, at, to))
		for i = 1, to - at + 1 do
			local v = values[i]
			if v and (at < first_whole or bytes <= 0) then
				v = string.sub(v, 1, string.byte(v, 1))
			elseif v then
				bytes = bytes - #v
			end
			n = n + 1
			reply[n] = v or false
		end
		at = to + 1
	end
end
return reply
