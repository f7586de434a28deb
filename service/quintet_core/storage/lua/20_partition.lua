-- One call's view of its partition: counters, the clock, what was looked up already, the events it is going to write.

local function redis_type(p, name)
  local key = p.tag .. name
  local kind = p.kinds[key]
  if not kind then
    kind = redis.call('TYPE', key).ok
    p.kinds[key] = kind
  end
  return kind
end

-- Must come before the first write to a key that the operation has not read: a key of a wrong type is damage.
local function expect(p, name, kind)
  local found = redis_type(p, name)
  if found ~= kind and found ~= 'none' then damaged(name .. ' is a ' .. found) end
end

local function open_partition(tag)
  local p = {
    tag = tag .. ':', now = 0, dirty = false, events = {}, named = {}, names = {}, queues = {}, numbered = {},
    kinds = {}, grown = {}, sessions = {}, next_due = nil,
  }
  local meta = redis.call('HMGET', p.tag .. 'meta', 'sequence', 'event', 'queue', 'clock')
  p.sequence, p.event, p.queue, p.clock =
    tonumber(meta[1]), tonumber(meta[2]), tonumber(meta[3]), tonumber(meta[4])
  if not (p.sequence and p.event and p.queue and p.clock) then damaged('meta is incomplete') end
  local time = redis.call('TIME')
  p.now = math.max(time[1] * 1000 + math.floor(time[2] / 1000), p.clock)
  expect(p, 'events', 'stream')
  return p
end

local function next_sequence(p)
  p.sequence = p.sequence + 1
  p.dirty = true
  return struct.pack('>I8', p.sequence)
end

local EVENT_FORMAT = '>BI4c8c8I4I8I8I4BI2'
local NO_JOB = '\0\0\0\0\0\0\0\0'

-- Events of one call share one stream entry; its names field says which queue numbers mean which name keys.
local function emit(p, kind, q, sequence, rank, attempt, wait_ms, service_ms, payload_bytes, state, detail)
  detail = detail or ''
  p.event = p.event + 1
  p.dirty = true
  p.events[#p.events + 1] = struct.pack(EVENT_FORMAT, kind, q.number, sequence or NO_JOB, rank or NO_JOB,
    attempt or 0, math.max(0, wait_ms or 0), math.max(0, service_ms or 0), payload_bytes or 0, state or 0, #detail)
    .. detail
  if not p.named[q.number] then
    p.named[q.number] = true
    p.names[#p.names + 1] = struct.pack('>I4I2', q.number, #q.name) .. q.name
  end
end

-- The queue has more to give than before; whoever waits for it is told when the call ends.
local function grew(p, q)
  p.grown[q.name] = q
end

local function wake(p, replica)
  local woken = {}
  for name, q in pairs(p.grown) do
    local until_at = redis.call('ZSCORE', p.tag .. 'waiting', name)
    if until_at and tonumber(until_at) > p.now then
      local ready = redis.call('ZCARD', p.tag .. q.base .. 'ready')
      if ready > 0 then
        woken[#woken + 1] = name
        woken[#woken + 1] = ready
        redis.call('PUBLISH', 'quintet:wake', replica .. struct.pack('>I4', ready) .. name)
      end
    end
  end
  return woken
end

-- Writes what the operations gathered. Nothing here can fail: the types were checked when the call began.
local function close_partition(p, replica)
  if p.dirty then
    redis.call('HSET', p.tag .. 'meta', 'sequence', string.format('%.0f', p.sequence), 'event',
      string.format('%.0f', p.event), 'queue', string.format('%.0f', p.queue), 'clock', string.format('%.0f', p.now))
    if #p.events > 0 then
      redis.call('XADD', p.tag .. 'events', string.format('%.0f-0', p.event), 't', string.format('%.0f', p.now),
        'n', table.concat(p.names), 'e', table.concat(p.events))
    end
  end
  return wake(p, replica)
end
