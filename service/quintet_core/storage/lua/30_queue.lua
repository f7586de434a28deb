-- Queues: finding, creating, due times, and the settling of what is due before anyone looks.

local SETS = { 'ready', 'delayed', 'leased', 'dead', 'expiring' }

-- The names of a queue's sets: q.ready and so on.
local function name_sets(q, base)
  q.ready, q.delayed, q.leased, q.dead, q.expiring =
    base .. 'ready', base .. 'delayed', base .. 'leased', base .. 'dead', base .. 'expiring'
end

local function adopt(p, number, raw)
  local q = read_queue(raw)
  local other = p.queues[q.name]
  if other and other.number ~= number then damaged('two queues of one name') end
  q.number = number
  name_sets(q, format('q%d:', number))
  p.queues[q.name] = q
  p.numbered[number] = q
  return q
end

-- The queue behind a name key, or nil.
local function find_queue(p, name)
  local q = p.queues[name]
  if q then return q end
  local number = call('HGET', p.tag .. 'names', name)
  if not number then return nil end
  q = adopt(p, number_of(number, 'queue number'), call('HGET', p.tag .. 'queues', number))
  if q.name ~= name then damaged('queue under a wrong name') end
  return q
end

-- The queue with a number, or nil when it was deleted.
local function numbered_queue(p, number)
  local q = p.numbered[number]
  if q then return q end
  local raw = call('HGET', p.tag .. 'queues', format('%d', number))
  if not raw then return nil end
  return adopt(p, number, raw)
end

local function expect_queue_keys(p)
  expect(p, 'names', 'hash')
  expect(p, 'index', 'zset')
  expect(p, 'queues', 'hash')
end

-- Types of every key that a new queue touches, and that its number is new.
local function expect_new_queue(p)
  expect_queue_keys(p)
  local number = format('%d', p.queue + 1)
  if call('HEXISTS', p.tag .. 'queues', number) == 1 then damaged('meta queue is behind') end
  for s = 1, #SETS do
    if redis_type(p, format('q%s:%s', number, SETS[s])) ~= 'none' then damaged('meta queue is behind') end
  end
end

-- Types of every set of a queue that a change of one of its jobs may write to.
local function expect_job_keys(p, q)
  if q.checked then return end
  expect(p, 'jobs', 'hash')
  expect(p, 'runs', 'hash')
  expect(p, 'due', 'zset')
  expect(p, 'owned', 'zset')
  if q.has_letters then expect(p, 'letters', 'zset') end
  for i = 1, #SETS do expect(p, q[SETS[i]], 'zset') end
  q.checked = true
end

local function save_queue(p, q)
  call('HSET', p.tag .. 'queues', format('%d', q.number), write_queue(q))
  p.dirty = true
end

-- Writes. The caller has checked that the name is free, the settings have their length, and the key types.
local function create_queue(p, name, settings)
  p.queue = p.queue + 1
  local number = format('%d', p.queue)
  local raw = write_queue({ paused = 0, paused_until = 0, created_at = p.now, name = name, settings = settings })
  call('HSET', p.tag .. 'names', name, number)
  call('ZADD', p.tag .. 'index', 0, name)
  call('HSET', p.tag .. 'queues', number, raw)
  local q = adopt(p, p.queue, raw)
  emit_of_queue(p, EVENT.QUEUE_CREATED, q)
  return q
end

local function due_of(p, q)
  if q.due == nil then
    local at = call('ZSCORE', p.tag .. 'due', q.number)
    q.due = at and tonumber(at) or false
  end
  return q.due
end

-- Something of the queue falls due at a time. The due set may hold an earlier time than needed, never a later one.
local function arm(p, q, at)
  local due = due_of(p, q)
  if not due or at < due then
    call('ZADD', p.tag .. 'due', format('%d', at), q.number)
    q.due = at
  end
  if not p.next_due or at < p.next_due then p.next_due = at end
end

local function earliest(p, q, set)
  local head = zread(p, 'ZRANGE', q[set], 0, 0, 'WITHSCORES')
  if head[2] and head[2] ~= FOREVER then return tonumber(head[2]) end
  return nil
end

local function rearm(p, q)
  local at = q.paused_until > 0 and q.paused_until or nil
  for _, set in ipairs({ 'delayed', 'leased', 'expiring' }) do
    local first = earliest(p, q, set)
    if first and (not at or first < at) then at = first end
  end
  if at then
    call('ZADD', p.tag .. 'due', format('%d', at), q.number)
    if not p.next_due or at < p.next_due then p.next_due = at end
  else
    call('ZREM', p.tag .. 'due', q.number)
  end
  q.due = at or false
end

local function due_places(p, q, set, limit)
  return zread(p, 'ZRANGEBYSCORE', q[set], '-inf', format('%d', p.now), 'LIMIT', 0, limit)
end

local function paused(p, q, direction)
  if q.paused == 0 or (q.paused_until > 0 and q.paused_until <= p.now) then return false end
  return q.paused == direction or q.paused == PAUSE_IN + PAUSE_OUT
end

local function counts(p, q)
  return {
    zread(p, 'ZCARD', q.ready), zread(p, 'ZCARD', q.delayed),
    zread(p, 'ZCARD', q.leased), zread(p, 'ZCARD', q.dead),
  }
end
