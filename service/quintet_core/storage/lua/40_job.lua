-- Jobs: loading, and the ways out of each state. Callers have checked types with expect_job_keys.

-- A job as it stands: { sequence, queue q, run (or nil), body (or nil, read when there is no run), place, state }.
-- nil when there is none, also when its queue was deleted.
local function load_job(p, sequence)
  local run_raw = hget(p, 'runs', sequence)
  local job
  if run_raw then
    local run = read_run(run_raw)
    local q = numbered_queue(p, run.queue)
    if not q then return nil end
    job = { sequence = sequence, run = run, q = q, place = place_of(run.rank, run.position, sequence),
      state = run.state, rank = run.rank, attempts = run.attempts, payload_bytes = run.payload_bytes,
      expires_at = run.expires_at }
  else
    local raw = hget(p, 'jobs', sequence)
    if not raw then return nil end
    local body = read_body(raw)
    local q = numbered_queue(p, body.queue)
    if not q then return nil end
    job = { sequence = sequence, raw = raw, body = body, q = q, place = body.rank .. sequence, state = READY,
      rank = body.rank, attempts = 0, payload_bytes = body.payload_bytes, expires_at = body.expires_at }
  end
  expect_job_keys(p, job.q)
  if job.state == READY and zread(p, 'ZSCORE', job.q.delayed, job.place) then
    job.state = DELAYED
  end
  return job
end

local STATE_SETS = { 'delayed', 'ready', 'leased', 'dead' }

-- The run of a job that was never delivered.
local function first_run(job)
  local body = job.body
  return { state = READY, on_close = 0, attempts = 0, queue = body.queue, rank = body.rank, position = job.sequence,
    token = NO_JOB, deadline = 0, leased_at = 0, ready_at = body.available_at, lease_ms = 0,
    expires_at = body.expires_at, attempts_max = body.attempts_max, payload_bytes = body.payload_bytes,
    session = NO_JOB, owner = NO_JOB, worker = '', reason = '' }
end

local function leave(p, job)
  if job.state == READY then
    drop_ready(p, job.q, job.place)
  else
    zrem(p, job.q[STATE_SETS[job.state]], job.place)
  end
  local run = job.run
  if job.state == LEASED and run.deadline == 0 then
    zrem(p, 'owned', run.session .. run.owner .. job.sequence)
  elseif job.state == DEAD and job.q.has_letters then
    zrem(p, 'letters', pack('>I4', job.q.number) .. job.place)
  end
  if job.expires_at ~= 0 and job.state ~= LEASED then
    zrem(p, job.q.expiring, job.place)
  end
end

-- The job is gone for good.
local function remove_job(p, job, kind, detail)
  leave(p, job)
  hdel(p, 'jobs', job.sequence)
  local service_ms = 0
  if job.run then
    hdel(p, 'runs', job.sequence)
    if job.state == LEASED then service_ms = p.now - job.run.leased_at end
  end
  emit(p, kind, job.q, job.sequence, job.rank, job.attempts, 0, service_ms, job.payload_bytes, 0, detail)
end

-- Puts a job that left its state into ready or delayed, with its run as it is now.
local function settle_into(p, job, available_at)
  local q, run = job.q, job.run
  job.place = place_of(run.rank, run.position, job.sequence)
  run.state, run.deadline, run.session, run.owner = READY, 0, NO_JOB, NO_JOB
  run.ready_at = math.max(available_at, p.now)
  if available_at > p.now then
    job.state = DELAYED
    zadd(p, q.delayed, format('%d', available_at), job.place)
    arm(p, q, available_at)
  else
    job.state = READY
    add_ready(p, q, job.place)
    grew(p, q)
  end
  if run.expires_at > 0 then
    zadd(p, q.expiring, format('%d', run.expires_at), job.place)
    arm(p, q, run.expires_at)
  end
  hset(p, 'runs', job.sequence, write_run(run))
end

local function backoff(q, attempts)
  if q.backoff_ms == 0 or attempts == 0 then return 0 end
  local longest = q.backoff_max_ms > 0 and q.backoff_max_ms or 3600000
  return math.min(longest, q.backoff_ms * 2 ^ math.min(attempts - 1, 50))
end

-- A leased job comes back. `way` = { kind, delay_ms (nil: the queue's backoff), placement, reason, undo }.
-- Returns the state it is in now, 0 when its time to live is over.
local function return_job(p, job, way)
  local q, run = job.q, job.run
  local service_ms = p.now - run.leased_at
  if way.undo then run.attempts = run.attempts - 1 end
  if way.reason ~= '' then run.reason = way.reason end
  leave(p, job)
  job.attempts = run.attempts
  local limit = run.attempts_max > 0 and run.attempts_max or q.attempts_max
  if run.expires_at > 0 and run.expires_at <= p.now then
    hdel(p, 'jobs', job.sequence)
    hdel(p, 'runs', job.sequence)
    emit(p, EVENT.EXPIRED, q, job.sequence, run.rank, run.attempts, 0, service_ms, run.payload_bytes, 0)
    return 0
  end
  if not way.undo and limit > 0 and run.attempts >= limit then
    job.state = DEAD
    run.state, run.deadline, run.session, run.owner = DEAD, 0, NO_JOB, NO_JOB
    zadd(p, q.dead, format('%d', p.now), job.place)
    hset(p, 'runs', job.sequence, write_run(run))
    if q.has_letters then
      zadd(p, 'letters', format('%d', p.now),
        pack('>I4', q.number) .. job.place)
    end
  else
    if way.placement == TAIL then run.position = next_sequence(p) end
    settle_into(p, job, p.now + (way.delay_ms or backoff(q, run.attempts)))
  end
  emit(p, way.kind, q, job.sequence, run.rank, run.attempts, 0, service_ms, run.payload_bytes, job.state, run.reason)
  return job.state
end

local LEASE_EXPIRED = { kind = EVENT.LEASE_EXPIRED, placement = 1, reason = 'lease expired' }

local function close_owned(p, job)
  return return_job(p, job, { kind = EVENT.OWNER_CLOSED, placement = job.run.on_close, reason = 'owner closed',
    delay_ms = 0 })
end

-- The job at a place in one of the sets of its queue.
local function job_at(p, place, set)
  local job = load_job(p, sequence_of(place))
  if not job or job.place ~= place then damaged(set .. ' place without its job') end
  local belongs = STATE_SETS[job.state] == set
  if set == 'expiring' then belongs = job.state == READY or job.state == DELAYED end
  if not belongs then damaged(set .. ' place of a job in another state') end
  return job
end

local function promote(p, job)
  zrem(p, job.q.delayed, job.place)
  add_ready(p, job.q, job.place)
  grew(p, job.q)
  emit(p, EVENT.READY, job.q, job.sequence, job.rank, job.attempts, 0, 0, job.payload_bytes, READY)
end

local function unpause(p, q)
  q.paused, q.paused_until = 0, 0
  save_queue(p, q)
  emit_of_queue(p, EVENT.QUEUE_RESUMED, q)
  grew(p, q)
end

local function load_due(p, q, set, limit, jobs)
  local places = limit > 0 and due_places(p, q, set, limit) or {}
  local found = {}
  for i = 1, #places do
    local sequence = sequence_of(places[i])
    jobs[sequence] = jobs[sequence] or job_at(p, places[i], set)
    found[i] = jobs[sequence]
  end
  return found
end

-- Carries out what has fallen due in a queue: pauses, expiries, leases, delays. At most MAX_DUE items; returns true
-- when there may be more, and then the caller asks again. All jobs are loaded before the first write.
local function settle(p, q)
  local due = due_of(p, q)
  if not due or due > p.now then return false end
  expect_job_keys(p, q)
  expect(p, 'queues', 'hash')
  local jobs = {}
  local expired = load_due(p, q, 'expiring', MAX_DUE, jobs)
  local lapsed = load_due(p, q, 'leased', MAX_DUE - #expired, jobs)
  local delayed = load_due(p, q, 'delayed', MAX_DUE - #expired - #lapsed, jobs)
  if q.paused_until > 0 and q.paused_until <= p.now then unpause(p, q) end
  for i = 1, #expired do
    remove_job(p, expired[i], EVENT.EXPIRED)
    expired[i].gone = true
  end
  for i = 1, #lapsed do return_job(p, lapsed[i], LEASE_EXPIRED) end
  for i = 1, #delayed do
    if not delayed[i].gone then promote(p, delayed[i]) end
  end
  rearm(p, q)
  return #expired + #lapsed + #delayed >= MAX_DUE
end

-- The same for one job, so that what is said of it is exact. Returns the job as it stands then, or nil.
local function settle_job(p, job)
  local at = job.expires_at
  if job.state ~= LEASED and job.state ~= DEAD and at > 0 and at <= p.now then
    remove_job(p, job, EVENT.EXPIRED)
    return nil
  end
  if job.state == LEASED and job.run.deadline > 0 and job.run.deadline <= p.now then
    if return_job(p, job, LEASE_EXPIRED) == 0 then return nil end
  elseif job.state == DELAYED then
    local score = tonumber(zread(p, 'ZSCORE', job.q.delayed, job.place))
    if score <= p.now then
      promote(p, job)
      job.state = READY
    end
  end
  return job
end
