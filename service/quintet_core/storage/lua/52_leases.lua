-- What holders of leases, and anyone with an id, can do with a job.
-- (sequence, scope, exact, ...): the job's queue must have a name key that is (exact = '1') or begins with scope.

local function in_scope(q, a, i)
  local scope = a[i + 1]
  if a[i + 2] == '1' then return q.name == scope end
  return sub(q.name, 1, #scope) == scope
end

local function find_job(p, a, i)
  local job = load_job(p, a[i])
  return job and in_scope(job.q, a, i) and job or nil
end

-- (..., token or '' for whichever lease): the leased job, or nil and the refusal.
local function find_leased(p, a, i)
  local job = find_job(p, a, i)
  if not job then return nil, refuse(REASON.JOB_NOT_FOUND) end
  local run, token = job.run, a[i + 3]
  local over = job.state ~= LEASED or (run.deadline > 0 and run.deadline <= p.now)
  -- What only waits to be removed is not there any more.
  if over and job.state ~= DEAD and job.expires_at > 0 and job.expires_at <= p.now then
    return nil, refuse(REASON.JOB_NOT_FOUND)
  end
  if token ~= '' and run and run.token ~= NO_JOB and token ~= run.token then return nil, refuse(REASON.STALE) end
  if over then return nil, refuse(REASON.NOT_LEASED) end
  return job
end

-- Ends a leased job for good, without the tables of find_leased and remove_job: most jobs end so. False, and nothing is
-- written, when it is anything but a job under a lease that the token ('' for whichever) is of.
local function end_leased(p, a, i, token, kind)
  local sequence = a[i]
  local raw = hget(p, 'runs', sequence)
  if not raw or #raw < RUN_BYTES then return false end
  local state, _, attempts, number, rank, position, held, deadline, leased_at, _, _, _, _, payload_bytes, session, owner =
    unpack_struct(RUN, raw)
  local q = numbered_queue(p, number)
  if not q or state ~= LEASED or not in_scope(q, a, i) or (token ~= '' and token ~= held)
    or (deadline > 0 and deadline <= p.now) then
    return false
  end
  if not q.endable then
    expect(p, 'jobs', 'hash')
    expect(p, 'owned', 'zset')
    expect(p, q.leased, 'zset')
    q.endable = true
  end
  zrem(p, q.leased, place_of(rank, position, sequence))
  if deadline == 0 then zrem(p, 'owned', session .. owner .. sequence) end
  hdel(p, 'jobs', sequence)
  hdel(p, 'runs', sequence)
  emit(p, kind, q, sequence, rank, attempts, 0, p.now - leased_at, payload_bytes, 0)
  return true
end

-- acknowledge(..., token)
local function acknowledge(p, a, i)
  if end_leased(p, a, i, a[i + 3], EVENT.ACKNOWLEDGED) then return 1 end
  local _, refusal = find_leased(p, a, i)
  return refusal
end

-- release(..., token, delay_ms or '' for the queue's backoff, placement, reason, undo) -> state, 0 when it expired
local function release(p, a, i)
  local job, refusal = find_leased(p, a, i)
  if not job then return refusal end
  due_of(p, job.q)
  return return_job(p, job, { kind = EVENT.RELEASED, delay_ms = tonumber(a[i + 4]), placement = tonumber(a[i + 5]),
    reason = a[i + 6], undo = a[i + 7] == '1' })
end

-- extend(..., token, lease_ms or 0) -> deadline
local function extend(p, a, i)
  local job, refusal = find_leased(p, a, i)
  if not job then return refusal end
  local run, lease_ms = job.run, tonumber(a[i + 4])
  if run.deadline == 0 then return refuse(REASON.INVALID) end
  if lease_ms == 0 then lease_ms = run.lease_ms end
  due_of(p, job.q)
  run.deadline = p.now + lease_ms
  zadd(p, job.q.leased, format('%d', run.deadline), job.place)
  hset(p, 'runs', job.sequence, write_run(run))
  arm(p, job.q, run.deadline)
  emit(p, EVENT.EXTENDED, job.q, job.sequence, run.rank, run.attempts, 0, 0, run.payload_bytes, LEASED)
  return format('%d', run.deadline)
end

-- delete(sequence, scope, exact) -> the state it was in
local function delete(p, a, i)
  if end_leased(p, a, i, '', EVENT.DELETED) then return LEASED end
  local job = find_job(p, a, i)
  job = job and settle_job(p, job)
  if not job then return refuse(REASON.JOB_NOT_FOUND) end
  remove_job(p, job, EVENT.DELETED)
  return job.state
end

local function without_payload(raw)
  local type_bytes, key_bytes, attributes_bytes = unpack_struct('>BBI2', raw, BODY_BYTES + 1)
  return sub(raw, 1, BODY_BYTES + 4 + type_bytes + key_bytes + attributes_bytes)
end

-- What a reader is told of a job: state, name key, available_at or '', run or '', body.
local function show(p, job, with_payload)
  local raw = job.raw or hget(p, 'jobs', job.sequence)
  read_body(raw)
  local available_at = ''
  if job.state == DELAYED then available_at = zread(p, 'ZSCORE', job.q.delayed, job.place) end
  return { job.state, job.q.name, available_at, job.run and write_run(job.run) or '', job.sequence,
    with_payload and raw or without_payload(raw) }
end

-- get_job(sequence, scope, exact, with payload)
local function get_job(p, a, i)
  local job = find_job(p, a, i)
  if job then
    -- Read before settling writes.
    job.raw = job.raw or hget(p, 'jobs', job.sequence)
    read_body(job.raw)
    job = settle_job(p, job)
  end
  if not job then return refuse(REASON.JOB_NOT_FOUND) end
  return show(p, job, a[i + 3] == '1')
end

local function member_index(p, name, score, place)
  if zread(p, 'ZSCORE', name, place) == score then return zread(p, 'ZRANK', name, place) + 1 end
  -- The cursor's job moved on: the first index behind (score, place), by bisection among equal scores.
  local low = zread(p, 'ZCOUNT', name, '-inf', '(' .. score)
  local high = zread(p, 'ZCOUNT', name, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local there = zread(p, 'ZRANGE', name, middle, middle)[1]
    if precedes(place, there) then high = middle else low = middle + 1 end
  end
  return low
end

-- list_jobs(name, state, limit, score, place or '' for the first page, with payload)
-- -> { cursor score, cursor place ('' at the end), jobs as show gives them ... }
local function list_jobs(p, a, i)
  local q = find_queue(p, a[i])
  if not q then return refuse(REASON.QUEUE_NOT_FOUND) end
  if settle(p, q) then return { 'a' } end
  local set = STATE_SETS[tonumber(a[i + 1])]
  local name = q[set]
  local limit, from = tonumber(a[i + 2]), 0
  if a[i + 4] ~= '' then from = member_index(p, name, a[i + 3], a[i + 4]) end
  local places = zread(p, 'ZRANGE', name, from, from + limit - 1, 'WITHSCORES')
  local reply, bytes = { '', '' }, 0
  for k = 1, #places, 2 do
    local shown = show(p, job_at(p, places[k], set), a[i + 5] == '1')
    bytes = bytes + #shown[6]
    reply[#reply + 1] = shown
    reply[1], reply[2] = places[k + 1], places[k]
    if bytes > MAX_REPLY_BYTES then return reply end
  end
  if #places < 2 * limit then reply[1], reply[2] = '', '' end
  return reply
end
