-- Queues as wholes: made, changed, paused, counted, emptied, listed.

-- What a reader is told of a queue: name key, number, paused, paused_until, created_at, settings, counts.
local function describe(p, q)
  local c = counts(p, q)
  local stopped, until_at = q.paused, q.paused_until
  if until_at > 0 and until_at <= p.now then stopped, until_at = 0, 0 end
  return { q.name, q.number, stopped, format('%d', until_at), format('%d', q.created_at), q.settings,
    c[1], c[2], c[3], c[4] }
end

local function settled_queue(p, name)
  local q = find_queue(p, name)
  if not q then return nil, refuse(REASON.QUEUE_NOT_FOUND) end
  if settle(p, q) then return nil, { 'a' } end
  return q
end

local function check_settings(settings)
  if #settings < SETTINGS_BYTES then damaged('short queue settings') end
end

-- create_queue(name, settings)
local function create_queue_verb(p, a, i)
  check_settings(a[i + 1])
  if find_queue(p, a[i]) then return refuse(REASON.QUEUE_EXISTS) end
  expect_new_queue(p)
  return describe(p, create_queue(p, a[i], a[i + 1]))
end

-- update_queue(name, settings)
local function update_queue(p, a, i)
  check_settings(a[i + 1])
  local q, instead = settled_queue(p, a[i])
  if not q then return instead end
  expect(p, 'queues', 'hash')
  expect_job_keys(p, q)
  q.settings = a[i + 1]
  save_queue(p, q)
  p.queues[q.name], p.numbered[q.number] = nil, nil
  q = adopt(p, q.number, write_queue(q))
  emit_of_queue(p, EVENT.QUEUE_UPDATED, q)
  return describe(p, q)
end

-- pause(name, direction, duration_ms or 0)
local function pause(p, a, i)
  local q, instead = settled_queue(p, a[i])
  if not q then return instead end
  expect(p, 'queues', 'hash')
  expect_job_keys(p, q)
  due_of(p, q)
  local direction, duration_ms = tonumber(a[i + 1]), tonumber(a[i + 2])
  if q.paused ~= 0 and q.paused ~= direction then direction = PAUSE_IN + PAUSE_OUT end
  q.paused, q.paused_until = direction, duration_ms > 0 and p.now + duration_ms or 0
  save_queue(p, q)
  if q.paused_until > 0 then arm(p, q, q.paused_until) end
  emit_of_queue(p, EVENT.QUEUE_PAUSED, q)
  return describe(p, q)
end

-- resume(name)
local function resume(p, a, i)
  local q, instead = settled_queue(p, a[i])
  if not q then return instead end
  if q.paused ~= 0 then
    expect(p, 'queues', 'hash')
    expect_job_keys(p, q)
    unpause(p, q)
  end
  return describe(p, q)
end

local function count(p, a, i)
  local q, instead = settled_queue(p, a[i])
  return q and counts(p, q) or instead
end

local function get_queue(p, a, i)
  local q, instead = settled_queue(p, a[i])
  return q and describe(p, q) or instead
end

-- list_queues(first name key, past the last ('' for none), after a name key ('' for the first page), limit)
local function list_queues(p, a, i)
  local low = a[i + 2] ~= '' and '(' .. a[i + 2] or '[' .. a[i]
  local high = a[i + 1] ~= '' and '(' .. a[i + 1] or '+'
  local names = call('ZRANGEBYLEX', p.tag .. 'index', low, high, 'LIMIT', 0, tonumber(a[i + 3]))
  local reply = {}
  for k = 1, #names do
    local q = find_queue(p, names[k])
    if not q then damaged('listed name without a queue') end
    reply[k] = describe(p, q)
  end
  return reply
end

-- delete_queue(name) -> jobs in it. The jobs themselves go in steps, by sweep.
local function delete_queue(p, a, i)
  local q = find_queue(p, a[i])
  if not q then return refuse(REASON.QUEUE_NOT_FOUND) end
  expect_queue_keys(p)
  expect_job_keys(p, q)
  expect(p, 'deleting', 'hash')
  local c = counts(p, q)
  local number = format('%d', q.number)
  call('HSET', p.tag .. 'deleting', number, q.name)
  call('HDEL', p.tag .. 'names', q.name)
  call('ZREM', p.tag .. 'index', q.name)
  call('HDEL', p.tag .. 'queues', number)
  call('ZREM', p.tag .. 'due', number)
  counts_of.forget(p, q.number)
  emit_of_queue(p, EVENT.QUEUE_DELETED, q, format('%d', c[1] + c[2] + c[3] + c[4]))
  p.queues[q.name], p.numbered[q.number] = nil, nil
  -- Whoever waits for the queue is to look again, and find it missing.
  call('PUBLISH', 'quintet:wake', string.rep('\0', 8) .. pack('>I4', 0) .. q.name)
  p.grown[q.name] = nil
  p.deleted = p.deleted or {}
  p.deleted[#p.deleted + 1] = q.name
  return c[1] + c[2] + c[3] + c[4]
end

local function load_places(p, places, what)
  local jobs = {}
  for k = 1, #places do jobs[k] = job_at(p, places[k], what) end
  return jobs
end

-- purge(name, state) -> jobs deleted in this step
local function purge(p, a, i)
  local q, instead = settled_queue(p, a[i])
  if not q then return instead end
  local set = STATE_SETS[tonumber(a[i + 1])]
  expect_job_keys(p, q)
  local jobs = load_places(p, zread(p, 'ZRANGE', q[set], 0, MAX_STEP - 1), set)
  for k = 1, #jobs do remove_job(p, jobs[k], EVENT.DELETED, 'purged') end
  return #jobs
end

local function revive(p, job, reset)
  leave(p, job)
  -- A delayed job that was never delivered has no run; from when it could be had must be kept somewhere.
  job.run = job.run or first_run(job)
  if reset then job.run.attempts = 0 end
  settle_into(p, job, p.now)
  emit(p, EVENT.REDRIVEN, job.q, job.sequence, job.rank, job.run.attempts, 0, 0, job.payload_bytes, READY)
end

-- redrive(name, state, wanted reason or '', jobs_max, reset, cursor score, cursor place or '')
-- -> { jobs, cursor score, cursor place ('' at the end) }
local function redrive(p, a, i)
  local q, instead = settled_queue(p, a[i])
  if not q then return instead end
  expect_job_keys(p, q)
  due_of(p, q)
  local set = STATE_SETS[tonumber(a[i + 1])]
  local name, wanted, left = q[set], a[i + 2], tonumber(a[i + 3])
  local from = a[i + 6] ~= '' and member_index(p, name, a[i + 5], a[i + 6]) or 0
  local places = zread(p, 'ZRANGE', name, from, from + MAX_STEP - 1, 'WITHSCORES')
  local chosen, score, place = {}, '', ''
  for k = 1, #places, 2 do
    if #chosen == left then break end
    local job = job_at(p, places[k], set)
    score, place = places[k + 1], places[k]
    if wanted == '' or (job.run and string.find(job.run.reason, wanted, 1, true)) then chosen[#chosen + 1] = job end
  end
  for k = 1, #chosen do revive(p, chosen[k], a[i + 4] == '1') end
  if #places < 2 * MAX_STEP then score, place = '', '' end
  return { #chosen, score, place }
end

-- redrive_job(sequence, scope, exact, state, reset) -> 1, 0 when it is not in that state
local function redrive_job(p, a, i)
  local job = find_job(p, a, i)
  job = job and settle_job(p, job)
  if not job or job.state ~= tonumber(a[i + 3]) then return 0 end
  due_of(p, job.q)
  revive(p, job, a[i + 4] == '1')
  return 1
end
