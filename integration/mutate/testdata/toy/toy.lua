-- 0 == 0
local n = 1
redis.call('SET', KEYS[1], n)
return n
