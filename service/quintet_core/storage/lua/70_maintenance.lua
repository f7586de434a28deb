-- Duties that any core carries out, any number of them at once.

local function first_due(p)
  local head = call('ZRANGE', p.tag .. 'due', 0, 0, 'WITHSCORES')
  return head[2] and tonumber(head[2]) or nil
end

-- settle_due(limit) -> 1 when more queues may be due. The call's reply tells the next due time of the partition.
local function settle_due(p, a, i)
  local limit = tonumber(a[i])
  local numbers = call('ZRANGEBYSCORE', p.tag .. 'due', '-inf', format('%d', p.now), 'LIMIT', 0, limit)
  local more = #numbers == limit
  for k = 1, #numbers do
    local q = numbered_queue(p, tonumber(numbers[k]))
    if not q then
      call('ZREM', p.tag .. 'due', numbers[k])
      p.dirty = true
    elseif settle(p, q) then
      more = true
    end
  end
  local next_due = first_due(p)
  if next_due and (not p.next_due or next_due < p.next_due) then p.next_due = next_due end
  return more and 1 or 0
end

local SWEPT_SETS = { 'ready', 'delayed', 'leased', 'dead' }

local function sweep_queue(p, number, name)
  local q = { number = tonumber(number), base = 'q' .. number .. ':', name = name, has_letters = true, due = false }
  expect_job_keys(p, q)
  local jobs, left = {}, MAX_STEP
  p.numbered[q.number] = q
  for s = 1, #SWEPT_SETS do
    local places = left > 0 and zread(p, 'ZRANGE', q.base .. SWEPT_SETS[s], 0, left - 1) or {}
    for k = 1, #places do jobs[#jobs + 1] = job_at(p, places[k], SWEPT_SETS[s]) end
    left = left - #places
  end
  p.numbered[q.number] = nil
  for k = 1, #jobs do remove_job(p, jobs[k], EVENT.DELETED, 'queue deleted') end
  if left > 0 then
    for s = 1, #SETS do
      p.zsets[q.base .. SETS[s]] = nil
      call('UNLINK', p.tag .. q.base .. SETS[s])
    end
    call('HDEL', p.tag .. 'deleting', number)
  end
end

-- sweep() removes what deleted queues, old deduplication keys, old waits and old sessions left -> 1 when there is more
local function sweep(p)
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
  return (number or #fields == MAX_STEP) and 1 or 0
end

-- letters(limit) -> for each dead job bound for another queue: sequence, its queue's name key, the queue's settings,
-- run, body
local function letters(p, a, i)
  local members = zread(p, 'ZRANGE', 'letters', 0, tonumber(a[i]) - 1)
  local reply = {}
  for k = 1, #members do
    local job = load_job(p, sequence_of(sub(members[k], 5)))
    if job and job.state == DEAD then
      local shown = show(p, job, true)
      shown[7] = job.q.settings
      reply[#reply + 1] = shown
    end
  end
  return reply
end

-- dead_letter(sequence, scope, exact, to): the job is in its dead-letter queue now, and leaves here
local function dead_letter(p, a, i)
  local job = find_job(p, a, i)
  if not job then return refuse(REASON.JOB_NOT_FOUND) end
  if job.state ~= DEAD then return refuse(REASON.NOT_LEASED) end
  remove_job(p, job, EVENT.DEAD_LETTERED, a[i + 3])
  return 1
end
