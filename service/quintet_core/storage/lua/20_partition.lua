-- One call's view of its partition: counters, the clock, what was looked up already, the events it is going to write.

local function redis_type(p, name)
  local kind = p.kinds[name]
  if not kind then
    kind = call('TYPE', p.tag .. name).ok
    p.kinds[name] = kind
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
    tag = tag .. ':', now = 0, dirty = false, events = {}, tallies = {}, names = {}, queues = {}, numbered = {},
    kinds = {}, grown = {}, sessions = {}, zsets = {}, hashes = {}, next_due = nil,
  }
  local meta = call('HMGET', p.tag .. 'meta', 'sequence', 'event', 'queue', 'clock', 'namespaces')
  p.sequence, p.event = number_of(meta[1], 'meta sequence'), number_of(meta[2], 'meta event')
  p.queue, p.clock = number_of(meta[3], 'meta queue'), number_of(meta[4], 'meta clock')
  if meta[5] and meta[5] ~= '0' then p.spaces = {} end
  local time = call('TIME')
  p.now = math.max(time[1] * 1000 + math.floor(time[2] / 1000), p.clock)
  -- Also says that events is a stream. Redis takes no entry that is not behind the last one.
  if #call('XRANGE', p.tag .. 'events', format('(%d-0', p.event), '+', 'COUNT', 1) > 0 then
    damaged('events are ahead of meta')
  end
  return p
end

local function next_sequence(p)
  p.sequence = p.sequence + 1
  p.dirty = true
  return pack('>I8', p.sequence)
end

local EVENT_FORMAT = '>BI4c8c8I4I8I8I4BI2'
local NAMED = 0 -- in a tally: the entry has the name
local NO_JOB = '\0\0\0\0\0\0\0\0'

-- What holds for all queues and tables of a namespace. Asked for only where p.spaces says that something holds for some.
-- Nothing here can fail: what stands in the place of settings is none.
local function space_of(p, q)
  local spaces = p.spaces
  if q.spaces == spaces then return q.space end
  local namespace = sub(q.name, 2, 1 + string.byte(q.name))
  local space = spaces[namespace]
  if not space then
    local raw = redis.pcall('HGET', p.tag .. 'namespaces', namespace)
    local flags = type(raw) == 'string' and #raw == 1 and string.byte(raw) or 0
    space = { off = flags % 2 == 1, payloads = flags % 4 >= 2, values = flags % 8 >= 4 }
    spaces[namespace] = space
  end
  q.spaces, q.space = spaces, space
  return space
end

-- Events of one call share one stream entry; its names field says which queue numbers mean which name keys. They are
-- tallied by kind as they come; 24_counts.lua makes totals of that.
local function emit(p, kind, q, sequence, rank, attempt, wait_ms, service_ms, payload_bytes, state, detail)
  local tally = p.tallies[q.number]
  if not tally then
    tally = {}
    p.tallies[q.number] = tally
  end
  tally[kind] = (tally[kind] or 0) + 1
  if state == DEAD then tally[13] = (tally[13] or 0) + 1 end -- jobs that died, behind the last kind of theirs
  p.dirty = true
  if p.spaces and kind < EVENT.QUEUE_CREATED and space_of(p, q).off then return end
  p.event = p.event + 1
  if wait_ms < 0 then wait_ms = 0 end
  if service_ms < 0 then service_ms = 0 end
  local event = pack(EVENT_FORMAT, kind, q.number, sequence, rank, attempt, wait_ms, service_ms, payload_bytes, state,
    detail and #detail or 0)
  p.events[#p.events + 1] = detail and event .. detail or event
  if not tally[NAMED] then
    tally[NAMED] = 0
    p.names[#p.names + 1] = pack('>I4I2', q.number, #q.name) .. q.name
  end
end

-- The queue has more to give than before; whoever waits for it is told when the call ends.
local function grew(p, q)
  p.grown[q.name] = q
end

-- An event of a queue or table as a whole.
local function emit_of_queue(p, kind, q, detail)
  emit(p, kind, q, NO_JOB, NO_JOB, 0, 0, 0, 0, 0, detail)
end
