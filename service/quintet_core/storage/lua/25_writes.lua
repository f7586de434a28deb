-- Writes to the big keys wait until the call ends, or until the key is read as a whole: then one command says all that the
-- call's operations said of it. Of a member or a field the last word counts. Nothing here can fail: operations have checked the types
-- before they write.

local CHUNK = 2000 -- arguments of one command

-- Begins and sends commands of at most CHUNK arguments: what is true in `said` by one, what is false by the other.
local function tell(key, said, put, drop, scored)
  local puts, n, drops, m = { put, key }, 2, { drop, key }, 2
  for member, value in pairs(said) do
    if not value then
      m = m + 1
      drops[m] = member
      if m >= CHUNK then
        call(unpack(drops, 1, m))
        m = 2
      end
    else
      if scored then puts[n + 1], puts[n + 2] = value, member else puts[n + 1], puts[n + 2] = member, value end
      n = n + 2
      if n >= CHUNK then
        call(unpack(puts, 1, n))
        n = 2
      end
    end
  end
  if n > 2 then call(unpack(puts, 1, n)) end
  if m > 2 then call(unpack(drops, 1, m)) end
end

local function zadd(p, name, score, member)
  local said = p.zsets[name]
  if said then said[member] = score else p.zsets[name] = { [member] = score } end
end

local function zrem(p, name, member)
  local said = p.zsets[name]
  if said then said[member] = false else p.zsets[name] = { [member] = false } end
end

local function hset(p, name, field, value)
  local said = p.hashes[name]
  if said then said[field] = value else p.hashes[name] = { [field] = value } end
end

local function hdel(p, name, field)
  local said = p.hashes[name]
  if said then said[field] = false else p.hashes[name] = { [field] = false } end
end

local function hget(p, name, field)
  local said = p.hashes[name]
  local value = said and said[field]
  if value == nil then return call('HGET', p.tag .. name, field) end
  return value
end

-- A command that reads a sorted set.
local function zread(p, command, name, ...)
  local said = p.zsets[name]
  if said then
    p.zsets[name] = nil
    tell(p.tag .. name, said, 'ZADD', 'ZREM', true)
  end
  return call(command, p.tag .. name, ...)
end

-- A command that reads a hash and is not HGET.
local function hread(p, command, name, ...)
  local said = p.hashes[name]
  if said then
    p.hashes[name] = nil
    tell(p.tag .. name, said, 'HSET', 'HDEL', false)
  end
  return call(command, p.tag .. name, ...)
end

local function write_all(p)
  for name, said in pairs(p.hashes) do tell(p.tag .. name, said, 'HSET', 'HDEL', false) end
  for name, said in pairs(p.zsets) do tell(p.tag .. name, said, 'ZADD', 'ZREM', true) end
  p.hashes, p.zsets = {}, {}
end

-- The ready places of a queue that the call has seen: the first of the set, in order; all of it when whole. Each reading
-- looks further ahead than the last.
local AHEAD_MAX = 256

local function look_ahead(p, q, wanted)
  local ahead = math.max(wanted + 1, math.min(AHEAD_MAX, (q.ahead or 0) * 4))
  q.ahead = ahead
  q.heads = zread(p, 'ZRANGE', q.ready, 0, ahead - 1)
  q.head, q.whole = 1, #q.heads < ahead
end

-- The place n behind the first, or nil.
local function head_at(p, q, n, wanted)
  if not q.heads or (q.head + n > #q.heads and not q.whole) then look_ahead(p, q, wanted) end
  return q.heads[q.head + n]
end

local function add_ready(p, q, place)
  zadd(p, q.ready, '0', place)
  local heads = q.heads
  if not heads then return end
  local at = #heads
  while at >= q.head and precedes(place, heads[at]) do at = at - 1 end
  if at < #heads or q.whole then table.insert(heads, at + 1, place) end
end

local function drop_ready(p, q, place)
  zrem(p, q.ready, place)
  if not q.heads then return end
  for at = q.head, #q.heads do
    if q.heads[at] == place then
      if at == q.head then q.head = at + 1 else table.remove(q.heads, at) end
      return
    end
  end
end

local function wake(p, replica)
  local woken = {}
  for name, q in pairs(p.grown) do
    -- Not checked before: what stands in the place of waiting must not undo what is done.
    local until_at = redis.pcall('ZSCORE', p.tag .. 'waiting', name)
    if type(until_at) == 'string' and tonumber(until_at) > p.now then
      local ready = zread(p, 'ZCARD', q.ready)
      if ready > 0 then
        woken[#woken + 1] = name
        woken[#woken + 1] = ready
        call('PUBLISH', 'quintet:wake', replica .. pack('>I4', ready) .. name)
      end
    end
  end
  return woken
end

-- Writes what the operations gathered. Nothing here can fail: the types were checked when the call began.
local function close_partition(p, replica)
  write_all(p)
  if p.dirty then
    counts_of.add(p)
    call('HSET', p.tag .. 'meta', 'sequence', format('%d', p.sequence), 'event',
      format('%d', p.event), 'queue', format('%d', p.queue), 'clock', format('%d', p.now))
    if #p.events > 0 then
      local id, time = format('%d-0', p.event), format('%d', p.now)
      local names, events = concat(p.names), concat(p.events)
      if p.values then
        call('XADD', p.tag .. 'events', id, 't', time, 'n', names, 'e', events, 'v', concat(p.values))
      else
        call('XADD', p.tag .. 'events', id, 't', time, 'n', names, 'e', events)
      end
    end
  end
  return wake(p, replica)
end
