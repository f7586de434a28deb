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
  local meta = call('HMGET', p.tag .. 'meta', 'sequence', 'event', 'queue', 'clock')
  p.sequence, p.event = number_of(meta[1], 'meta sequence'), number_of(meta[2], 'meta event')
  p.queue, p.clock = number_of(meta[3], 'meta queue'), number_of(meta[4], 'meta clock')
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
local NO_JOB = '\0\0\0\0\0\0\0\0'

-- Events of one call share one stream entry; its names field says which queue numbers mean which name keys. They are
-- tallied by kind as they come; 27_counts.lua makes totals of that.
local function emit(p, kind, q, sequence, rank, attempt, wait_ms, service_ms, payload_bytes, state, detail)
  p.event = p.event + 1
  p.dirty = true
  if wait_ms < 0 then wait_ms = 0 end
  if service_ms < 0 then service_ms = 0 end
  local event = pack(EVENT_FORMAT, kind, q.number, sequence, rank, attempt, wait_ms, service_ms, payload_bytes, state,
    detail and #detail or 0)
  p.events[#p.events + 1] = detail and event .. detail or event
  local tally = p.tallies[q.number]
  if not tally then
    tally = {}
    p.tallies[q.number] = tally
    p.names[#p.names + 1] = pack('>I4I2', q.number, #q.name) .. q.name
  end
  tally[kind] = (tally[kind] or 0) + 1
  if state == DEAD then tally[13] = (tally[13] or 0) + 1 end -- jobs that died, behind the last kind of theirs
end

-- The queue has more to give than before; whoever waits for it is told when the call ends.
local function grew(p, q)
  p.grown[q.name] = q
end

-- An event of a queue or table as a whole.
local function emit_of_queue(p, kind, q, detail)
  emit(p, kind, q, NO_JOB, NO_JOB, 0, 0, 0, 0, 0, detail)
end
