-- Sessions and owners: who holds owner leases, and what happens when they go.

local function check_session_keys(p)
  expect(p, 'sessions', 'zset')
  expect(p, 'lapsed', 'zset')
  expect(p, 'owned', 'zset')
end

-- Releases at most MAX_STEP leases below a prefix of owned. Returns how many, and whether there may be more.
local function release_owned(p, prefix)
  local members = redis.call('ZRANGEBYLEX', p.tag .. 'owned', '[' .. prefix,
    '[' .. prefix .. string.rep('\255', 25 - #prefix), 'LIMIT', 0, MAX_STEP)
  local jobs, orphans = {}, {}
  for k = 1, #members do
    if #members[k] ~= 24 then damaged('owner lease of a wrong length') end
    local job = load_job(p, string.sub(members[k], 17))
    if job and job.state == LEASED and job.run.session .. job.run.owner == string.sub(members[k], 1, 16) then
      due_of(p, job.q)
      jobs[#jobs + 1] = job
    else
      orphans[#orphans + 1] = members[k]
    end
  end
  for k = 1, #jobs do close_owned(p, jobs[k]) end
  -- Of a queue that is being deleted: nothing to give back.
  for k = 1, #orphans do
    redis.call('ZREM', p.tag .. 'owned', orphans[k])
    p.dirty = true
  end
  return #jobs, #members == MAX_STEP
end

-- close_owner(session, owner) -> { leases released, 1 when there may be more }
local function close_owner(p, a, i)
  expect(p, 'owned', 'zset')
  if #a[i] ~= 8 or #a[i + 1] ~= 8 then damaged('owner of a wrong length') end
  local released, more = release_owned(p, a[i] .. a[i + 1])
  return { released, more and 1 or 0 }
end

local function mark_lapsed(p, session)
  redis.call('ZREM', p.tag .. 'sessions', session)
  redis.call('ZADD', p.tag .. 'lapsed', string.format('%.0f', p.now), session)
  p.sessions[session] = 'lapsed'
  p.dirty = true
end

-- close_session(session) -> { leases released, 1 when there may be more }. It cannot come back.
local function close_session(p, a, i)
  check_session_keys(p)
  if #a[i] ~= 8 then damaged('session of a wrong length') end
  local standing = session_standing(p, a[i])
  local released, more = release_owned(p, a[i])
  if standing == 'alive' then mark_lapsed(p, a[i]) end
  return { released, more and 1 or 0 }
end

-- heartbeat(ttl_ms, n, n sessions) -> for each 1 (alive), 0 (holds nothing here) or -1 (lapsed)
local function heartbeat(p, a, i)
  check_session_keys(p)
  local standings = {}
  for k = 1, tonumber(a[i + 1]) do
    local session = a[i + 1 + k]
    local standing = session_standing(p, session)
    if standing == 'alive' then
      enter_session(p, session, tonumber(a[i]))
      p.dirty = true
    end
    standings[k] = standing == 'alive' and 1 or standing == 'new' and 0 or -1
  end
  return standings
end

-- lapse() releases leases of one session whose time is over -> 1 when there may be more
local function lapse(p)
  check_session_keys(p)
  local due = redis.call('ZRANGEBYSCORE', p.tag .. 'sessions', '-inf', string.format('%.0f', p.now), 'LIMIT', 0, 1)
  if #due == 0 then return 0 end
  local _, more = release_owned(p, due[1])
  if not more then mark_lapsed(p, due[1]) end
  return 1
end
