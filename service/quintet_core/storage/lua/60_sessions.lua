-- Sessions and owners: who holds owner leases, and what happens when they go.

local function check_session_keys(p)
  expect(p, 'sessions', 'zset')
  expect(p, 'lapsed', 'zset')
  expect(p, 'owned', 'zset')
end

-- Releases owner leases among the first MAX_STEP members of owned below a prefix, behind a member ('' for the first
-- page), but for the sequences in kept and for leases with a token above newest (nil: none is). Returns how many, and the
-- member to go on behind ('' at the end).
local function release_owned(p, prefix, behind, kept, newest)
  local low = behind ~= '' and '(' .. behind or '[' .. prefix
  local members = zread(p, 'ZRANGEBYLEX', 'owned', low, '[' .. prefix .. string.rep('\255', 25 - #prefix),
    'LIMIT', 0, MAX_STEP)
  local jobs, orphans = {}, {}
  for k = 1, #members do
    if #members[k] ~= 24 then damaged('owner lease of a wrong length') end
    local sequence = sub(members[k], 17)
    if not kept[sequence] then
      local job = load_job(p, sequence)
      if job and job.state == LEASED and job.run.session .. job.run.owner == sub(members[k], 1, 16) then
        if not newest or unpack_struct('>I8', job.run.token) <= newest then
          due_of(p, job.q)
          jobs[#jobs + 1] = job
        end
      else
        orphans[#orphans + 1] = members[k]
      end
    end
  end
  for k = 1, #jobs do close_owned(p, jobs[k]) end
  -- Of a queue that is being deleted: nothing to give back.
  for k = 1, #orphans do
    zrem(p, 'owned', orphans[k])
    p.dirty = true
  end
  return #jobs, #members == MAX_STEP and members[MAX_STEP] or ''
end

-- close_owner(session, owner, cursor or '', n, n sequences whose leases stay) -> { leases released, cursor or '' }
-- What the owner takes after the first page stays his: the cursor begins with the newest token there was then.
local function close_owner(p, a, i)
  expect(p, 'owned', 'zset')
  if #a[i] ~= 8 or #a[i + 1] ~= 8 then damaged('owner of a wrong length') end
  local kept = {}
  for k = 1, tonumber(a[i + 3]) do kept[a[i + 3 + k]] = true end
  local behind, newest = a[i + 2], p.event
  if behind ~= '' then newest, behind = unpack_struct('>I8', behind), sub(behind, 9) end
  local released, cursor = release_owned(p, a[i] .. a[i + 1], behind, kept, newest)
  return { released, cursor ~= '' and pack('>I8', newest) .. cursor or '' }
end

local function mark_lapsed(p, session)
  call('ZREM', p.tag .. 'sessions', session)
  call('ZADD', p.tag .. 'lapsed', format('%d', p.now), session)
  p.sessions[session] = 'lapsed'
  p.dirty = true
end

-- close_session(session, cursor or '') -> { leases released, cursor or '' }. It cannot come back.
local function close_session(p, a, i)
  check_session_keys(p)
  if #a[i] ~= 8 then damaged('session of a wrong length') end
  local standing = session_standing(p, a[i])
  local released, cursor = release_owned(p, a[i], a[i + 1], {})
  if standing == 'alive' then mark_lapsed(p, a[i]) end
  return { released, cursor }
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
  local due = call('ZRANGEBYSCORE', p.tag .. 'sessions', '-inf', format('%d', p.now), 'LIMIT', 0, 1)
  if #due == 0 then return 0 end
  local _, cursor = release_owned(p, due[1], '', {})
  if cursor == '' then mark_lapsed(p, due[1]) end
  return 1
end
