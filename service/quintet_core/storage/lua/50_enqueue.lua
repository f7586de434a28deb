-- enqueue(name, settings of a queue to create or '', n, then n times: options, deduplication key, tail)
-- options: rank, delay, time to live, attempts_max, lease, deduplication window, payload bytes. The tail is the rest
-- of the body. Answers { sequences in order, sequences among them that were there before }.

local OPTIONS = '>c8I8I8I4I8I8I4'
local OPTIONS_BYTES = 48

local function read_new_job(options, key, tail)
  if #options ~= OPTIONS_BYTES then damaged('options of a wrong length') end
  local n = { key = key, tail = tail }
  n.rank, n.delay_ms, n.live_ms, n.attempts_max, n.lease_ms, n.window_ms, n.payload_bytes =
    struct.unpack(OPTIONS, options)
  return n
end

local function in_range(q, rank)
  return not q.rank_min or not (precedes(rank, q.rank_min, 2) or precedes(q.rank_max, rank, 2))
end

-- The sequence a deduplication key stands for now, or nil.
local function remembered(p, q, key)
  local raw = redis.call('HGET', p.tag .. 'dedup', struct.pack('>I4', q.number) .. key)
  if not raw then return nil end
  if #raw ~= 16 then damaged('deduplication entry of a wrong length') end
  if struct.unpack('>I8', raw) <= p.now then return nil end
  return string.sub(raw, 9)
end

local function policy_refusal(p, q, news, fresh)
  if q.jobs_max then
    settle(p, q)
    local size = redis.call('ZCARD', p.tag .. q.base .. 'ready') + redis.call('ZCARD', p.tag .. q.base .. 'delayed')
    if size + fresh > q.jobs_max then return refuse(REASON.FULL, 'max', string.format('%.0f', q.jobs_max)) end
  end
  for i = 1, #news do
    if not in_range(q, news[i].rank) then return refuse(REASON.RANK) end
    if q.payload_bytes_max and news[i].payload_bytes > q.payload_bytes_max then
      return refuse(REASON.PAYLOAD, 'max', string.format('%.0f', q.payload_bytes_max))
    end
  end
  return nil
end

local function insert(p, q, n)
  local sequence = next_sequence(p)
  local place = n.rank .. sequence
  local available_at = p.now + n.delay_ms
  local expiry = n.live_ms > 0 and p.now + n.live_ms or 0
  redis.call('HSET', p.tag .. 'jobs', sequence, struct.pack(BODY, q.number, n.rank, p.now, available_at, expiry,
    n.attempts_max, n.lease_ms, n.payload_bytes) .. n.tail)
  local state = READY
  if n.delay_ms > 0 then
    state = DELAYED
    redis.call('ZADD', p.tag .. q.base .. 'delayed', string.format('%.0f', available_at), place)
    arm(p, q, available_at)
  else
    redis.call('ZADD', p.tag .. q.base .. 'ready', 0, place)
    grew(p, q)
  end
  if expiry > 0 then
    redis.call('ZADD', p.tag .. q.base .. 'expiring', string.format('%.0f', expiry), place)
    arm(p, q, expiry)
  end
  if n.key ~= '' then
    local field = struct.pack('>I4', q.number) .. n.key
    redis.call('HSET', p.tag .. 'dedup', field, struct.pack('>I8', p.now + n.window_ms) .. sequence)
    redis.call('ZADD', p.tag .. 'dedup_due', string.format('%.0f', p.now + n.window_ms), field)
  end
  emit(p, EVENT.ENQUEUED, q, sequence, n.rank, 0, 0, 0, n.payload_bytes, state)
  return sequence
end

-- Which of the new jobs are known by their key: index -> sequence, or -> index of the same key in this batch.
local function known_keys(p, q, news)
  local known, first, fresh = {}, {}, #news
  for i = 1, #news do
    local key = news[i].key
    if key ~= '' then
      expect(p, 'dedup', 'hash')
      expect(p, 'dedup_due', 'zset')
      known[i] = first[key] or (q and remembered(p, q, key))
      if known[i] then fresh = fresh - 1 else first[key] = i end
    end
  end
  return known, fresh
end

local function enqueue(p, a, i)
  local name, settings, n = a[i], a[i + 1], tonumber(a[i + 2])
  local q = find_queue(p, name)
  if not q then
    if settings == '' then return refuse(REASON.QUEUE_NOT_FOUND) end
    if #settings < SETTINGS_BYTES then damaged('short queue settings') end
    expect_queue_keys(p)
    expect(p, 'jobs', 'hash')
    expect(p, 'due', 'zset')
    expect(p, 'waiting', 'zset')
    local base = string.format('q%d:', p.queue + 1)
    for s = 1, #SETS do expect(p, base .. SETS[s], 'zset') end
  else
    if paused(p, q, PAUSE_IN) then return refuse(REASON.PAUSED) end
    expect_job_keys(p, q)
  end
  local news = {}
  for k = 1, n do
    local at = i + 3 * k
    news[k] = read_new_job(a[at], a[at + 1], a[at + 2])
  end
  local known, fresh = known_keys(p, q, news)
  if q then
    local refusal = fresh > 0 and policy_refusal(p, q, news, fresh)
    if refusal then return refusal end
    due_of(p, q)
  else
    q = create_queue(p, name, settings)
  end
  local sequences, repeated = {}, {}
  for k = 1, n do
    local old = known[k]
    if old then
      sequences[k] = type(old) == 'number' and sequences[old] or old
      repeated[#repeated + 1] = sequences[k]
    else
      sequences[k] = insert(p, q, news[k])
    end
  end
  return { table.concat(sequences), table.concat(repeated) }
end
