-- Taking jobs.

local MAX_REPLY_BYTES = 8388608

-- best(n, n names, allow_missing, wait): {'b', the place at the head of all of them, index of its queue} or {'e'}.
-- dequeue(n, n names, terms) answers {'j', then for each job: index of its queue's name, run, body, sequence}, {'e'}
-- (empty), {'a'} (ask again: more is due than one call settles) or {'c'} (only worse than bound).
-- terms: jobs_max, lease_ms, session_ttl_ms, on_close, flags (1 allow missing, 2 wait, 4 owner lease, 8 bound); then
-- session and owner (8 bytes each), bound (16 bytes), and the worker's label.

local TERMS = '>I4I8I8BB'
local TERMS_BYTES = 22

local function read_terms(raw)
  if #raw < TERMS_BYTES then damaged('short terms') end
  local jobs_max, lease_ms, session_ttl_ms, on_close, flags, at = unpack_struct(TERMS, raw)
  local session, owner, bound = nil, nil, nil
  if flags % 8 >= 4 then
    if #raw < at + 15 then damaged('short terms') end
    session, owner, at = sub(raw, at, at + 7), sub(raw, at + 8, at + 15), at + 16
  end
  if flags >= 8 then
    if #raw < at + 15 then damaged('short terms') end
    bound, at = sub(raw, at, at + 15), at + 16
  end
  return { jobs_max = jobs_max, lease_ms = lease_ms, session_ttl_ms = session_ttl_ms, on_close = on_close,
    allow_missing = flags % 2 == 1, wait = flags % 4 >= 2, session = session, owner = owner, bound = bound,
    worker = sub(raw, at) }
end

-- Queues that may give a job now. Returns queues (index -> queue), or nil and the answer to give instead.
local function open_queues(p, a, i, n, allow_missing)
  local found, more = {}, false
  for k = 0, n - 1 do
    local q = find_queue(p, a[i + k])
    if q then
      more = settle(p, q) or more
      if not paused(p, q, PAUSE_OUT) then found[k + 1] = q end
    elseif not allow_missing then
      return nil, refuse(REASON.QUEUE_NOT_FOUND, 'index', tostring(k))
    end
  end
  if more then return nil, { 'a' } end
  return found
end

-- The best places of several queues, at most limit of them, in order: index, place, index, place ... Second answer: there
-- are jobs, but the next is worse than bound.
local function best_places(p, found, n, limit, bound)
  local heads, seen = {}, {}
  for k = 1, n do
    local q = found[k]
    if q and not seen[q.number] then
      seen[q.number] = true
      local place = head_at(p, q, 0, limit)
      if place then heads[#heads + 1] = { index = k, q = q, place = place, taken = 0 } end
    end
  end
  local picked = {}
  while #picked < 2 * limit do
    local best = heads[1]
    for h = 2, #heads do
      if heads[h].place and not (best.place and precedes(best.place, heads[h].place)) then best = heads[h] end
    end
    if not best or not best.place then break end
    if bound and precedes(bound, best.place) then return picked, true end
    picked[#picked + 1] = best.index
    picked[#picked + 1] = best.place
    best.taken = best.taken + 1
    best.place = #picked < 2 * limit and head_at(p, best.q, best.taken, limit)
  end
  return picked, false
end

-- The job at a ready place, with what its lease needs to know. Hot: one small table, no record read twice.
local function take(p, q, place)
  local sequence = sequence_of(place)
  local raw = hget(p, 'jobs', sequence)
  if not raw then damaged('ready place without its job') end
  if #raw < BODY_BYTES then damaged('short body') end
  local number, rank, _, available_at, expires_at, attempts_max, lease_ms, payload_bytes = unpack_struct(BODY, raw)
  if number ~= q.number then damaged('place in a wrong queue') end
  local run_raw = hget(p, 'runs', sequence)
  if not run_raw then
    if place ~= rank .. sequence then damaged('ready place of another job') end
    return { sequence = sequence, place = place, q = q, raw = raw, lease_ms = lease_ms, rank = rank,
      position = sequence, attempts = 0, ready_at = available_at, expires_at = expires_at,
      attempts_max = attempts_max, payload_bytes = payload_bytes, reason = '' }
  end
  local run = read_run(run_raw)
  if run.state ~= READY or place ~= place_of(run.rank, run.position, sequence) then
    damaged('ready place of another job')
  end
  return { sequence = sequence, place = place, q = q, raw = raw, lease_ms = lease_ms, rank = run.rank,
    position = run.position, attempts = run.attempts, ready_at = run.ready_at, expires_at = run.expires_at,
    attempts_max = run.attempts_max, payload_bytes = run.payload_bytes, reason = run.reason, token = run.token }
end

-- Leases a job that was taken; its run as it is now.
local function lease(p, job, terms)
  local q, sequence, place, now = job.q, job.sequence, job.place, p.now
  local lease_ms = terms.lease_ms
  if lease_ms == 0 then lease_ms = job.lease_ms end
  if lease_ms == 0 then lease_ms = q.lease_ms end
  if lease_ms == 0 then lease_ms = 60000 end
  local session, owner, deadline = terms.session, terms.owner, 0
  drop_ready(p, q, place)
  if session then
    zadd(p, q.leased, FOREVER, place)
    zadd(p, 'owned', '0', session .. owner .. sequence)
  else
    session, owner, deadline = NO_JOB, NO_JOB, now + lease_ms
    zadd(p, q.leased, format('%d', deadline), place)
    arm(p, q, deadline)
  end
  if job.expires_at > 0 then zrem(p, q.expiring, place) end
  local attempts, worker, reason, token = job.attempts + 1, terms.worker, job.reason, p.event + 1
  if job.token then
    -- Where events are off, offsets stand still; a job's tokens do not.
    local last = unpack_struct('>I8', job.token)
    if last >= token then token = last + 1 end
  end
  local raw = pack(NEW_RUN, LEASED, terms.on_close, attempts, q.number, job.rank, job.position, token, deadline,
    now, job.ready_at, lease_ms, job.expires_at, job.attempts_max, job.payload_bytes, session, owner,
    #worker, #reason) .. worker .. reason
  hset(p, 'runs', sequence, raw)
  emit(p, EVENT.DEQUEUED, q, sequence, job.rank, attempts, now - job.ready_at, 0, job.payload_bytes, LEASED)
  return raw
end

-- Is the session still there to own leases? Checked without a write; 'new' when it must be entered.
local function session_standing(p, session)
  local known = p.sessions[session]
  if known then return known end
  expect(p, 'sessions', 'zset')
  local at = call('ZSCORE', p.tag .. 'sessions', session)
  if at then
    known = tonumber(at) > p.now and 'alive' or 'lapsed'
  else
    known = call('ZSCORE', p.tag .. 'lapsed', session) and 'lapsed' or 'new'
  end
  p.sessions[session] = known
  return known
end

local function enter_session(p, session, ttl_ms)
  call('ZADD', p.tag .. 'sessions', format('%d', p.now + ttl_ms), session)
  p.sessions[session] = 'alive'
end

-- Someone waits for these queues: whoever adds to them is to say so.
local function await(p, a, i, n)
  expect(p, 'waiting', 'zset')
  for k = 0, n - 1 do
    local at = call('ZSCORE', p.tag .. 'waiting', a[i + k])
    if not at or tonumber(at) < p.now + WAITING_MS / 2 then
      call('ZADD', p.tag .. 'waiting', format('%d', p.now + WAITING_MS), a[i + k])
      p.dirty = true
    end
  end
end

-- Types of every key that a lease on one of the queue's jobs writes.
local function expect_lease_keys(p, q, session)
  if q.leasable == (session ~= nil) then return end
  expect(p, 'runs', 'hash')
  expect(p, q.leased, 'zset')
  expect(p, q.expiring, 'zset')
  if session then
    expect(p, 'owned', 'zset')
  else
    expect(p, 'due', 'zset')
    due_of(p, q)
  end
  q.leasable = session ~= nil
end

local function take_picked(p, found, picked, session)
  local jobs, bytes = {}, 0
  for k = 1, #picked, 2 do
    local q = found[picked[k]]
    expect_lease_keys(p, q, session)
    local job = take(p, q, picked[k + 1])
    bytes = bytes + #job.raw
    if k > 1 and bytes > MAX_REPLY_BYTES then break end
    jobs[#jobs + 1] = job
  end
  return jobs
end

local function enter_new(p, session, terms)
  if session and session_standing(p, session) == 'new' then enter_session(p, session, terms.session_ttl_ms) end
end

local function nothing(p, a, names, n, terms)
  if terms.wait then await(p, a, names, n) end
  return { 'e' }
end

-- One job of one queue, the hottest case, without the tables of the others.
local function dequeue_one(p, a, names, terms)
  local q, session = find_queue(p, a[names]), terms.session
  if not q then
    if terms.allow_missing then return nothing(p, a, names, 1, terms) end
    return refuse(REASON.QUEUE_NOT_FOUND, 'index', '0')
  end
  if settle(p, q) then return { 'a' } end
  local place = not paused(p, q, PAUSE_OUT) and head_at(p, q, 0, 1)
  if not place then return nothing(p, a, names, 1, terms) end
  if terms.bound and precedes(terms.bound, place) then return { 'c' } end
  expect_lease_keys(p, q, session)
  local job = take(p, q, place)
  enter_new(p, session, terms)
  return { 'j', 0, lease(p, job, terms), job.raw, job.sequence }
end

local function dequeue(p, a, i)
  local n = tonumber(a[i])
  local names, terms = i + 1, read_terms(a[i + 1 + n])
  local session = terms.session
  if session and session_standing(p, session) == 'lapsed' then return refuse(REASON.LAPSED) end
  if n == 1 and terms.jobs_max == 1 then return dequeue_one(p, a, names, terms) end
  local found, instead = open_queues(p, a, names, n, terms.allow_missing)
  if not found then return instead end
  local picked, worse = best_places(p, found, n, terms.jobs_max, terms.bound)
  if worse and #picked == 0 then return { 'c' } end
  if #picked == 0 then return nothing(p, a, names, n, terms) end
  local jobs = take_picked(p, found, picked, session)
  enter_new(p, session, terms)
  local reply, m = { 'j', 0, '', '', '' }, 1
  for k = 1, #jobs do
    local job = jobs[k]
    reply[m + 1], reply[m + 2], reply[m + 3], reply[m + 4] =
      picked[2 * k - 1] - 1, lease(p, job, terms), job.raw, job.sequence
    m = m + 4
  end
  return reply
end

local function best(p, a, i)
  local n = tonumber(a[i])
  local found, instead = open_queues(p, a, i + 1, n, a[i + 1 + n] == '1')
  if not found then return instead end
  local picked = best_places(p, found, n, 1, nil)
  if #picked == 0 then
    if a[i + 2 + n] == '1' then await(p, a, i + 1, n) end
    return { 'e' }
  end
  return { 'b', picked[2], picked[1] - 1 }
end
