-- enqueue(name, settings of a queue to create or '', n, then n times: options, deduplication key, tail)
-- options: rank, delay, time to live, attempts_max, lease, deduplication window, payload bytes. The tail is the rest
-- of the body. Answers { sequences in order, sequences among them that were there before }, for one new job its sequence.

local OPTIONS = '>c8I8I8I4I8I8I4'
local OPTIONS_BYTES = 48

local function in_range(q, rank)
  return not q.rank_min or not (rank_precedes(rank, q.rank_min) or rank_precedes(q.rank_max, rank))
end

-- The sequence a deduplication key stands for now, or nil.
local function remembered(p, q, key)
  local raw = call('HGET', p.tag .. 'dedup', pack('>I4', q.number) .. key)
  if not raw then return nil end
  if #raw ~= 16 then damaged('deduplication entry of a wrong length') end
  if unpack_struct('>I8', raw) <= p.now then return nil end
  return sub(raw, 9)
end

-- Whether a queue with policies takes the new jobs of which `fresh` are not there yet: nil, or the refusal.
local function policy_refusal(p, q, a, i, n, fresh)
  if q.jobs_max then
    settle(p, q)
    local size = zread(p, 'ZCARD', q.ready) + zread(p, 'ZCARD', q.delayed)
    if size + fresh > q.jobs_max then return refuse(REASON.FULL, 'max', format('%d', q.jobs_max)) end
  end
  if not (q.rank_min or q.payload_bytes_max) then return nil end
  for at = i + 3, i + 3 * n, 3 do
    local rank, _, _, _, _, _, payload_bytes = unpack_struct(OPTIONS, a[at])
    if not in_range(q, rank) then return refuse(REASON.RANK, 'min', q.rank_min, 'max', q.rank_max) end
    if q.payload_bytes_max and payload_bytes > q.payload_bytes_max then
      return refuse(REASON.PAYLOAD, 'max', format('%d', q.payload_bytes_max))
    end
  end
  return nil
end

local function remember(p, q, key, window_ms, sequence)
  local field, until_at = pack('>I4', q.number) .. key, p.now + window_ms
  call('HSET', p.tag .. 'dedup', field, pack('>I8', until_at) .. sequence)
  call('ZADD', p.tag .. 'dedup_due', format('%d', until_at), field)
end

-- Beside the state, in an event: the payload is among what its entry carries.
local CARRIED = 64

local function insert(p, q, options, key, tail)
  local rank, delay_ms, live_ms, attempts_max, lease_ms, window_ms, payload_bytes = unpack_struct(OPTIONS, options)
  local sequence, now = next_sequence(p), p.now
  local place, available_at, expires_at, state = rank .. sequence, now + delay_ms, 0, READY
  if delay_ms > 0 then
    state = DELAYED
    zadd(p, q.delayed, format('%d', available_at), place)
    arm(p, q, available_at)
  else
    add_ready(p, q, place)
    grew(p, q)
  end
  if live_ms > 0 then
    expires_at = now + live_ms
    zadd(p, q.expiring, format('%d', expires_at), place)
    arm(p, q, expires_at)
  end
  hset(p, 'jobs', sequence, pack(BODY, q.number, rank, now, available_at, expires_at, attempts_max, lease_ms,
    payload_bytes) .. tail)
  if key ~= '' then remember(p, q, key, window_ms, sequence) end
  if p.spaces and space_of(p, q).payloads and not space_of(p, q).off then
    p.values = p.values or {}
    p.values[#p.values + 1] = sub(tail, #tail - payload_bytes + 1)
    state = state + CARRIED
  end
  emit(p, EVENT.ENQUEUED, q, sequence, rank, 0, 0, 0, payload_bytes, state)
  return sequence
end

local NONE = {}

-- Which of the new jobs are known by their key: index -> sequence, or -> index of the same key in this batch. Second
-- answer: how many are not.
local function known_keys(p, q, a, i, n)
  local known, first, fresh = NONE, nil, n
  for k = 1, n do
    local key = a[i + 3 * k + 1]
    if #a[i + 3 * k] ~= OPTIONS_BYTES then damaged('options of a wrong length') end
    if key ~= '' then
      if not first then
        known, first = {}, {}
        expect(p, 'dedup', 'hash')
        expect(p, 'dedup_due', 'zset')
      end
      known[k] = first[key] or (q and remembered(p, q, key))
      if known[k] then fresh = fresh - 1 else first[key] = k end
    end
  end
  return known, fresh
end

local NOTHING_DUE = NO_JOB .. NO_JOB

-- Keys that only jobs with a delay or a time to live need.
local function expect_due_keys(p, q, a, i, n)
  for at = i + 3, i + 3 * n, 3 do
    -- Delay and time to live, as they stand in the options.
    if sub(a[at], 9, 24) ~= NOTHING_DUE then
      expect(p, 'due', 'zset')
      expect(p, q.delayed, 'zset')
      expect(p, q.expiring, 'zset')
      due_of(p, q)
      return
    end
  end
end

local function enqueue(p, a, i)
  local name, settings, n = a[i], a[i + 1], tonumber(a[i + 2])
  local q = find_queue(p, name)
  if not q then
    if settings == '' then return refuse(REASON.QUEUE_NOT_FOUND) end
    if #settings < SETTINGS_BYTES then damaged('short queue settings') end
    expect_new_queue(p)
    expect(p, 'jobs', 'hash')
    expect(p, 'due', 'zset')
  else
    if paused(p, q, PAUSE_IN) then return refuse(REASON.PAUSED) end
    if not q.enterable then
      expect(p, 'jobs', 'hash')
      expect(p, q.ready, 'zset')
      q.enterable = true
    end
  end
  local known, fresh = known_keys(p, q, a, i, n)
  if q then
    local refusal = fresh > 0 and policy_refusal(p, q, a, i, n, fresh)
    if refusal then return refusal end
    expect_due_keys(p, q, a, i, n)
  else
    q = create_queue(p, name, settings)
  end
  if n == 1 and fresh == 1 then return insert(p, q, a[i + 3], a[i + 4], a[i + 5]) end
  local sequences, repeated = {}, {}
  for k = 1, n do
    local at, old = i + 3 * k, known[k]
    if not old then
      sequences[k] = insert(p, q, a[at], a[at + 1], a[at + 2])
    else
      sequences[k] = type(old) == 'number' and sequences[old] or old
      repeated[#repeated + 1] = sequences[k]
    end
  end
  return { concat(sequences), concat(repeated) }
end
