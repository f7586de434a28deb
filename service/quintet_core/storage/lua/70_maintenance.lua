-- Duties that any core carries out, any number of them at once.

local settle_due, sweep, letters, dead_letter

-- A chunk of Lua has at most 200 locals: the others of this file end with it.
do

local function next_due(p)
  local head = call('ZRANGEBYSCORE', p.tag .. 'due', format('(%d', p.now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return head[2] and tonumber(head[2]) or nil
end

local function settle_numbered(p, number)
  local n = number_of(number, 'due queue')
  if n >= FIRST_TABLE then
    local t = tables.numbered(p, n)
    if t then return rows.settle(p, t) end
  else
    local q = numbered_queue(p, n)
    if q then return settle(p, q) end
  end
  call('ZREM', p.tag .. 'due', number)
  p.dirty = true
  return false
end

-- settle_due(limit) -> 1 when more queues may be due. The call's reply tells the next due time of the partition.
function settle_due(p, a, i)
  local limit = tonumber(a[i])
  local numbers = call('ZRANGEBYSCORE', p.tag .. 'due', '-inf', format('%d', p.now), 'LIMIT', 0, limit)
  local more, problem = #numbers == limit, nil
  for k = 1, #numbers do
    -- What is wrong with one queue must not stop the time of the others. It is said when they are done.
    local ok, again = pcall(settle_numbered, p, numbers[k])
    if not ok then problem = problem or again elseif again then more = true end
  end
  local at = next_due(p)
  if at and (not p.next_due or at < p.next_due) then p.next_due = at end
  if problem then error(problem, 0) end
  return more and 1 or 0
end

local SWEPT_SETS = { 'ready', 'delayed', 'leased', 'dead' }

local function sweep_queue(p, number, name)
  local q = { number = number_of(number, 'deleted queue'), name = name, has_letters = true, due = false }
  name_sets(q, 'q' .. number .. ':')
  expect_job_keys(p, q)
  local jobs, left = {}, MAX_STEP
  p.numbered[q.number] = q
  for s = 1, #SWEPT_SETS do
    local places = left > 0 and zread(p, 'ZRANGE', q[SWEPT_SETS[s]], 0, left - 1) or {}
    for k = 1, #places do jobs[#jobs + 1] = job_at(p, places[k], SWEPT_SETS[s]) end
    left = left - #places
  end
  p.numbered[q.number] = nil
  counts_of.forget(p, q.number)
  for k = 1, #jobs do remove_job(p, jobs[k], EVENT.DELETED, 'queue deleted') end
  if left > 0 then
    for s = 1, #SETS do
      p.zsets[q[SETS[s]]] = nil
      call('UNLINK', p.tag .. q[SETS[s]])
    end
    call('HDEL', p.tag .. 'deleting', number)
  end
end

-- sweep() removes what deleted tables and queues, old deduplication keys, old waits and old sessions left -> 1 when there
-- is more
function sweep(p)
  local swept, more_rows = pcall(tables.sweep, p)
  expect(p, 'deleting', 'hash')
  expect(p, 'dedup', 'hash')
  expect(p, 'dedup_due', 'zset')
  expect(p, 'waiting', 'zset')
  expect(p, 'lapsed', 'zset')
  local number, name
  if redis_type(p, 'deleting') ~= 'none' then
    local found = call('HSCAN', p.tag .. 'deleting', '0', 'COUNT', 1)[2]
    number, name = found[1], found[2]
  end
  local now = format('%d', p.now)
  local fields = call('ZRANGEBYSCORE', p.tag .. 'dedup_due', '-inf', now, 'LIMIT', 0, MAX_STEP)
  if number then sweep_queue(p, number, name) end
  for k = 1, #fields do
    local raw = call('HGET', p.tag .. 'dedup', fields[k])
    -- A key used again after its window has a later expiry, and its own due entry was moved with it.
    if raw and #raw == 16 and unpack_struct('>I8', raw) <= p.now then call('HDEL', p.tag .. 'dedup', fields[k]) end
    call('ZREM', p.tag .. 'dedup_due', fields[k])
  end
  call('ZREMRANGEBYSCORE', p.tag .. 'waiting', '-inf', now)
  call('ZREMRANGEBYSCORE', p.tag .. 'lapsed', '-inf', format('%d', p.now - LAPSED_KEPT_MS))
  if not swept then error(more_rows, 0) end
  return (more_rows or number or #fields == MAX_STEP) and 1 or 0
end

-- letters(skip, limit) -> for each dead job bound for another queue, behind the first `skip`: what show tells, then the
-- settings of its queue
function letters(p, a, i)
  local skip, limit = tonumber(a[i]), tonumber(a[i + 1])
  local members = zread(p, 'ZRANGE', 'letters', skip, skip + limit - 1)
  local reply, stale, bytes = {}, {}, 0
  for k = 1, #members do
    local job = load_job(p, sequence_of(sub(members[k], 5)))
    -- The queue is gone, or has had no dead-letter queue for a while.
    if not job or job.state ~= DEAD or not job.q.has_letters then
      stale[#stale + 1] = members[k]
    elseif bytes < MAX_REPLY_BYTES then
      local shown = show(p, job, true)
      shown[7] = job.q.settings
      bytes = bytes + #shown[6]
      reply[#reply + 1] = shown
    end
  end
  for k = 1, #stale do
    zrem(p, 'letters', stale[k])
    p.dirty = true
  end
  return reply
end

-- dead_letter(sequence, scope, exact, to): the job is in its dead-letter queue now, and leaves here
function dead_letter(p, a, i)
  local job = find_job(p, a, i)
  if not job then return refuse(REASON.JOB_NOT_FOUND) end
  if job.state ~= DEAD then return refuse(REASON.NOT_LEASED) end
  remove_job(p, job, EVENT.DEAD_LETTERED, a[i + 3])
  return 1
end

end
