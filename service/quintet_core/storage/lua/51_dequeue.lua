-- Taking jobs.

local MAX_REPLY_BYTES = 8388608

-- best(n, n names, allow_missing, wait): {'b', the place at the head of all of them, index of its queue} or {'e'}.
-- dequeue(n, n names, jobs_max, lease_ms, session, owner, on_close, allow_missing, wait, bound, worker, session_ttl)
-- answers {'j', then for each job: index of its queue's name, run, body, sequence}, {'e'} (empty), {'a'} (ask again: more is due
-- than one call settles) or {'c'} (only worse than bound).

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

-- The best places of several queues, at most limit of them: { index, place } in order.
local function best_places(p, found, n, limit, bound)
  local heads, at, seen = {}, {}, {}
  for k = 1, n do
    local q = found[k]
    if q and not seen[q.number] then
      seen[q.number] = true
      local places = redis.call('ZRANGE', p.tag .. q.base .. 'ready', 0, limit - 1)
      if #places > 0 then heads[#heads + 1], at[#at + 1] = { k, places }, 1 end
    end
  end
  local picked, worse = {}, false
  while #picked < limit do
    local best = nil
    for h = 1, #heads do
      local place = heads[h][2][at[h]]
      if place and (not best or precedes(place, heads[best][2][at[best]], 4)) then best = h end
    end
    if not best then break end
    local place = heads[best][2][at[best]]
    if bound ~= '' and precedes(bound, place, 4) then
      worse = true
      break
    end
    picked[#picked + 1] = { heads[best][1], place }
    at[best] = at[best] + 1
  end
  return picked, worse
end

local function take(p, q, place)
  local sequence = sequence_of(place)
  local raw = redis.call('HGET', p.tag .. 'jobs', sequence)
  local body = read_body(raw)
  if body.queue ~= q.number then damaged('place in a wrong queue') end
  local run_raw = redis.call('HGET', p.tag .. 'runs', sequence)
  local run
  if run_raw then
    run = read_run(run_raw)
  else
    run = { attempts = 0, queue = q.number, rank = body.rank, position = sequence, reason = '',
      ready_at = math.max(body.enqueued_at, body.available_at), expires_at = body.expires_at,
      attempts_max = body.attempts_max, payload_bytes = body.payload_bytes }
  end
  return { sequence = sequence, place = place, q = q, raw = raw, body = body, run = run }
end

local function lease(p, job, terms)
  local q, run = job.q, job.run
  local lease_ms = terms.lease_ms
  if lease_ms == 0 then lease_ms = job.body.lease_ms end
  if lease_ms == 0 then lease_ms = q.lease_ms end
  if lease_ms == 0 then lease_ms = 60000 end
  run.state, run.attempts, run.on_close, run.worker = LEASED, run.attempts + 1, terms.on_close, terms.worker
  run.leased_at, run.token, run.lease_ms = p.now, p.event + 1, lease_ms
  redis.call('ZREM', p.tag .. q.base .. 'ready', job.place)
  if terms.session == '' then
    run.session, run.owner, run.deadline = NO_JOB, NO_JOB, p.now + lease_ms
    redis.call('ZADD', p.tag .. q.base .. 'leased', string.format('%.0f', run.deadline), job.place)
    arm(p, q, run.deadline)
  else
    run.session, run.owner, run.deadline = terms.session, terms.owner, 0
    redis.call('ZADD', p.tag .. q.base .. 'leased', FOREVER, job.place)
    redis.call('ZADD', p.tag .. 'owned', 0, terms.session .. terms.owner .. job.sequence)
  end
  if run.expires_at > 0 then redis.call('ZREM', p.tag .. q.base .. 'expiring', job.place) end
  local raw = write_run(run)
  redis.call('HSET', p.tag .. 'runs', job.sequence, raw)
  emit(p, EVENT.DEQUEUED, q, job.sequence, run.rank, run.attempts, p.now - run.ready_at, 0, run.payload_bytes, LEASED)
  return raw
end

-- Is the session still there to own leases? Checked without a write; 'new' when it must be entered.
local function session_standing(p, session)
  local known = p.sessions[session]
  if known then return known end
  expect(p, 'sessions', 'zset')
  local at = redis.call('ZSCORE', p.tag .. 'sessions', session)
  if at then
    known = tonumber(at) > p.now and 'alive' or 'lapsed'
  else
    known = redis.call('ZSCORE', p.tag .. 'lapsed', session) and 'lapsed' or 'new'
  end
  p.sessions[session] = known
  return known
end

local function enter_session(p, session, ttl_ms)
  redis.call('ZADD', p.tag .. 'sessions', string.format('%.0f', p.now + ttl_ms), session)
  p.sessions[session] = 'alive'
end

-- Someone waits for these queues: whoever adds to them is to say so.
local function await(p, a, i, n)
  expect(p, 'waiting', 'zset')
  for k = 0, n - 1 do
    local at = redis.call('ZSCORE', p.tag .. 'waiting', a[i + k])
    if not at or tonumber(at) < p.now + WAITING_MS / 2 then
      redis.call('ZADD', p.tag .. 'waiting', string.format('%.0f', p.now + WAITING_MS), a[i + k])
      p.dirty = true
    end
  end
end

local function take_picked(p, found, picked)
  local jobs, bytes = {}, 0
  for k = 1, #picked do
    local q = found[picked[k][1]]
    expect_job_keys(p, q)
    due_of(p, q)
    local job = take(p, q, picked[k][2])
    bytes = bytes + #job.raw
    if k > 1 and bytes > MAX_REPLY_BYTES then break end
    jobs[k] = job
  end
  return jobs
end

local function dequeue(p, a, i)
  local n = tonumber(a[i])
  local names, at = i + 1, i + 1 + n
  local jobs_max, bound = tonumber(a[at]), a[at + 7]
  local terms = { lease_ms = tonumber(a[at + 1]), session = a[at + 2], owner = a[at + 3],
    on_close = tonumber(a[at + 4]), worker = a[at + 8] }
  if terms.session ~= '' and session_standing(p, terms.session) == 'lapsed' then return refuse(REASON.LAPSED) end
  local found, instead = open_queues(p, a, names, n, a[at + 5] == '1')
  if not found then return instead end
  local picked, worse = best_places(p, found, n, jobs_max, bound)
  if #picked == 0 then
    if worse then return { 'c' } end
    if a[at + 6] == '1' then await(p, a, names, n) end
    return { 'e' }
  end
  local jobs = take_picked(p, found, picked)
  if terms.session ~= '' and session_standing(p, terms.session) == 'new' then
    enter_session(p, terms.session, tonumber(a[at + 9]))
  end
  local reply = { 'j' }
  for k = 1, #jobs do
    local m = #reply
    reply[m + 1], reply[m + 2] = picked[k][1] - 1, lease(p, jobs[k], terms)
    reply[m + 3], reply[m + 4] = jobs[k].raw, jobs[k].sequence
  end
  return reply
end

local function best(p, a, i)
  local n = tonumber(a[i])
  local found, instead = open_queues(p, a, i + 1, n, a[i + 1 + n] == '1')
  if not found then return instead end
  local picked = best_places(p, found, n, 1, '')
  if #picked == 0 then
    if a[i + 2 + n] == '1' then await(p, a, i + 1, n) end
    return { 'e' }
  end
  return { 'b', picked[1][2], picked[1][1] - 1 }
end
