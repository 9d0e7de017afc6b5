-- Scans a collection's documents. Returns their headers and the lengths of their bodies, or
-- whole documents where they are small.
--
-- HSCAN loads whole values, and they may be large. So the script takes a few documents at a
-- time, and fewer after a large one.
--
-- The caller passes the cuts of the collection, and the script leaves out each document that
-- is at or under its cut: it is expired. The score is _ts for a document that inherits the
-- TTL, and the deadline for one with a TTL of its own. A document with a kept clock or an instant of its
-- own is never left out.
--
-- KEYS  1 state, 2 config, 3 documents
-- ARGV  1 collection, 2 cursor, 3 how many documents the first chunk takes,
--       4 stop after returning this many documents, 5 stop after examining this many,
--       6 stop after examining this many bytes of values,
--       7 the longest header to return,
--       8 stop after returning this many bytes of whole documents (0: return none whole, and
--         do not stop for it),
--       9 the cut of documents that inherit, 10 the cut of documents with a TTL of their own,
--       11 what the ids of the documents to return begin with
-- Returns  {head, server, next cursor, examined, loaded, chunk, ...}:
--          server names the process that knows the cursors ('' if unknown); the next cursor
--          is '0' at the end; examined and loaded are the number of documents and of bytes.
--          A chunk has at least one document. It is {cursor, next cursor, how many documents
--          it took, 1, {id, value, ...}}, or {cursor, next cursor, how many, 0, {id, header,
--          length of the body, ...}}.
local state, config, docs = KEYS[1], KEYS[2], KEYS[3]
local collection, cursor, take = ARGV[1], ARGV[2], tonumber(ARGV[3])
local want, most, bytes = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local longest_header, whole = tonumber(ARGV[7]), tonumber(ARGV[8])
local inherit_cut, own_cut, prefix = tonumber(ARGV[9]), tonumber(ARGV[10]), ARGV[11]
local most_at_once, small, wholes = 32, 1024, whole > 0
local reply_head = head(state, config, collection, docs)
local info = redis.pcall('INFO', 'server')
local server = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''

-- Reports whether a document is at or under its cut. Header in header.go explains the bytes.
local function expired(v)
	if #v < 17 then
		return false
	end
	local _, a, b, c, d, e, f = string.byte(v, 1, 7)
	local ts = ((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f
	a, b, c, d = string.byte(v, 14, 17)
	local ttl = ((a * 256 + b) * 256 + c) * 256 + d
	if ttl == 0 then
		return ts <= inherit_cut
	end
	return ttl < 2147483648 and ts + ttl * 1000 <= own_cut -- a larger number is -1, never, or a long header's, which Go judges
end

-- Returns those of {id, value, ...} that are not expired and have the prefix, then three numbers of bytes: of all
-- values, of the returned values, and of the longest of all values.
local function sift(values)
	local live, n, size, sent, high = {}, 0, 0, 0, 0
	for i = 1, #values, 2 do
		local v = values[i + 1]
		size = size + #v
		high = math.max(high, #v)
		if not expired(v) and string.sub(values[i], 1, #prefix) == prefix then
			live[n + 1], live[n + 2] = values[i], v
			n = n + 2
			sent = sent + #v
		end
	end
	return live, size, sent, high
end

-- Returns the headers and the lengths of documents.
local function headers(values)
	local found, n = {}, 0
	for i = 1, #values, 2 do
		local v = values[i + 1]
		local length = string.byte(v, 1) or 0
		found[n + 1] = values[i]
		found[n + 2] = string.sub(v, 1, math.min(length, longest_header))
		found[n + 3] = #v - length
		n = n + 3
	end
	return found
end

local chunks = {}
local examined, loaded = 0, 0
local largest = 1 -- of the values so far
repeat
	local page = redis.call('HSCAN', docs, cursor, 'COUNT', take)
	local live, size, sent, high = sift(page[2])
	examined, loaded = examined + #page[2] / 2, loaded + size
	if #live > 0 then
		local as_whole = wholes and high <= small and sent <= whole
		if as_whole then
			whole = whole - sent
		elseif high <= small then
			whole = 0
		end
		chunks[#chunks + 1] = {cursor, page[1], take, as_whole and 1 or 0, as_whole and live or headers(live)}
		want = want - #live / 2
	end
	cursor = page[1]
	largest = math.max(largest, high)
	take = math.max(1, math.min(2 * take, most_at_once, want, most - examined, math.floor((bytes - loaded) / largest)))
until cursor == '0' or want <= 0 or examined >= most or loaded >= bytes or wholes and whole <= 0
return {reply_head, server, cursor, examined, loaded, unpack(chunks)}
