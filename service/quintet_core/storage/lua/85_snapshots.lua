-- Snapshots: once a slot of time, what each queue and table of the partition looks like, as records of the metrics log.
-- Many cores ask; each queue is written once a slot. The work goes in steps: where the last step ended stands beside what
-- it wrote, so that any core goes on there, also after a crash.

-- A chunk of Lua has at most 200 locals: those of this file are a function's.
local snapshots = (function()

local snapshots = {}

local RECORD = '>BI4I8I8I8I8I8I8c104c16I2'
local OF_QUEUE, OF_TABLE, OF_PROCESS = 1, 2, 3
-- Totals of a record; numbers are kept free behind them.
local TOTALS, TOTALS_FORMAT, TOTALS_BYTES = 13, '>I8I8I8I8I8I8I8I8I8I8I8I8I8', 104
local FREE = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
local BEHIND_EACH = '\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255'

-- Names one step looks at, and records it writes.
local LOOKS, WRITES = 500, 50
-- A queue in which nothing is and nothing happens is written so often only.
local IDLE_MS = 60000
-- Ranks whose first job is looked at for the oldest. Reading a job reads its payload: from large ones, no further.
local RANKS = 16
local LARGE_BYTES = 16384

-- Of the pass over all names: the slot in which it began, the slot of the last step, records written in that, and where it
-- is. The name key behind which to go on follows.
local PASS, PASS_BYTES = '>I8I8I4B', 21
local IN_QUEUES, IN_TABLES, DONE = 1, 2, 3
local PASS_FIELD = 'pass'
-- Of a queue or table: when it was written last, the sum of its totals then, 1 when nothing was in it.
local LAST, LAST_BYTES = '>I8I8B', 17

local PHASES = {
  [IN_QUEUES] = { names = 'names', index = 'index' },
  [IN_TABLES] = { names = 'table_names', index = 'table_index' },
}

local function read_pass(p)
  local raw = call('HGET', p.tag .. 'snapshots', PASS_FIELD)
  if not raw then return { began = -1, slot = -1, written = 0, phase = DONE, behind = '' } end
  if #raw < PASS_BYTES then damaged('short pass of snapshots') end
  local began, slot, written, phase = unpack_struct(PASS, raw)
  if phase < IN_QUEUES or phase > DONE then damaged('pass of snapshots that is nowhere') end
  return { began = began, slot = slot, written = written, phase = phase, behind = sub(raw, PASS_BYTES + 1) }
end

local function write_pass(pass)
  return pack(PASS, pass.began, pass.slot, pass.written, pass.phase) .. pass.behind
end

-- As kept in counts: number -> the totals in the order of a record; 'all' -> those of everything there ever was.
local function read_totals(raw)
  if not raw or #raw < TOTALS_BYTES then return string.rep('\0', TOTALS_BYTES), 0 end
  local totals, sum = { unpack_struct(TOTALS_FORMAT, raw) }, 0
  for k = 1, TOTALS do sum = sum + totals[k] end
  return sub(raw, 1, TOTALS_BYTES), sum
end

-- Since when a ready job is.
local function ready_since(p, sequence)
  local run = hget(p, 'runs', sequence)
  if run then return read_run(run).ready_at end
  return read_body(hget(p, 'jobs', sequence)).available_at
end

-- How long the oldest of the jobs that are first of their rank has been ready; 0: there is none.
local function oldest_ready_age(p, ready)
  local low, oldest = '-', nil
  for rank = 1, RANKS do
    local place = zread(p, 'ZRANGEBYLEX', ready, low, '+', 'LIMIT', 0, 1)[1]
    if not place then break end
    local sequence = sequence_of(place)
    if rank > 1 and hread(p, 'HSTRLEN', 'jobs', sequence) > LARGE_BYTES then break end
    local since = ready_since(p, sequence)
    if not oldest or since < oldest then oldest = since end
    -- No place is as long as that.
    low = '(' .. sub(place, 1, 8) .. BEHIND_EACH
  end
  return oldest and math.max(0, p.now - oldest) or 0
end

-- ready, delayed, leased, dead, oldest ready age
local function look_at_queue(p, number)
  local q = {}
  name_sets(q, 'q' .. number .. ':')
  local ready, delayed = zread(p, 'ZCARD', q.ready), zread(p, 'ZCARD', q.delayed)
  local leased, dead = zread(p, 'ZCARD', q.leased), zread(p, 'ZCARD', q.dead)
  return ready, delayed, leased, dead, ready > 0 and oldest_ready_age(p, q.ready) or 0
end

local function look_at_table(p, number)
  return zread(p, 'ZCARD', 't' .. number .. ':keys'), 0, 0, 0, 0
end

-- The record of one queue or table and what is remembered of it; nil when it is not to be written now.
local function describe(p, pass, number, totals_raw, last_raw)
  local kind = pass.phase == IN_QUEUES and OF_QUEUE or OF_TABLE
  local numeral = number_of(number, 'number')
  if (numeral >= FIRST_TABLE) ~= (kind == OF_TABLE) then damaged('number of another kind') end
  local totals, sum = read_totals(totals_raw)
  local last_at, last_sum, idle = 0, -1, 0
  if last_raw and #last_raw == LAST_BYTES then last_at, last_sum, idle = unpack_struct(LAST, last_raw) end
  if last_at >= pass.slot and last_raw then return nil end
  if idle == 1 and sum == last_sum and p.now - last_at < IDLE_MS then return nil end
  local look = kind == OF_QUEUE and look_at_queue or look_at_table
  local ready, delayed, leased, dead, age = look(p, number)
  idle = ready + delayed + leased + dead == 0 and 1 or 0
  local record = pack(RECORD, kind, numeral, last_at > 0 and p.now - last_at or 0, ready, delayed, leased, dead, age,
    totals, FREE, 0)
  return record, pack(LAST, p.now, sum, idle)
end

-- The names behind where the pass is, and what is known of each: name keys, numbers, totals, last snapshots.
local function next_names(p, pass)
  local phase = PHASES[pass.phase]
  local low = pass.behind ~= '' and '(' .. pass.behind or '-'
  local names = call('ZRANGEBYLEX', p.tag .. phase.index, low, '+', 'LIMIT', 0, LOOKS)
  if #names == 0 then return names end
  local numbers = call('HMGET', p.tag .. phase.names, unpack(names))
  local asked = {}
  for k = 1, #names do asked[k] = numbers[k] or '' end
  return names, asked, call('HMGET', p.tag .. 'counts', unpack(asked)), call('HMGET', p.tag .. 'snapshots', unpack(asked))
end

-- Goes on with the pass: appends what it finds to `said` and moves on. Does not write.
local function go_on(p, pass, most, said)
  local names, numbers, totals, lasts = next_names(p, pass)
  local looked = 0
  while looked < #names and #said.records < WRITES and pass.written < most do
    looked = looked + 1
    -- What is wrong with one queue must not keep the others from being seen.
    local ok, record, last = pcall(describe, p, pass, numbers[looked], totals[looked], lasts[looked])
    if not ok then
      said.damaged = said.damaged + 1
    elseif record then
      local n = #said.records + 1
      said.records[n] = record
      said.names[n] = pack('>I4I2', number_of(numbers[looked], 'number'), #names[looked]) .. names[looked]
      said.lasts[2 * n - 1], said.lasts[2 * n] = numbers[looked], last
      pass.written = pass.written + 1
    end
  end
  if looked > 0 then pass.behind = names[looked] end
  if looked == #names and #names < LOOKS then pass.phase, pass.behind = pass.phase + 1, '' end
end

-- Where there is nothing to do but to wait for the next slot: nil. Else the pass, begun anew where the last one has ended.
local function due_pass(p, slot, most)
  local pass = read_pass(p)
  if pass.phase == DONE then
    if slot <= pass.began then return nil end
    pass.began, pass.phase, pass.behind = slot, IN_QUEUES, ''
  end
  if slot > pass.slot then pass.slot, pass.written = slot, 0 end
  return pass.written < most and pass or nil
end

-- take_snapshots(interval ms, most records of a slot) -> { 1 when there is more to do in this slot, records written, queues
-- and tables that could not be read, the totals of the partition }
function snapshots.take(p, a, i)
  local interval_ms, most = tonumber(a[i]), tonumber(a[i + 1])
  expect(p, 'snapshots', 'hash')
  expect(p, 'counts', 'hash')
  local said = { records = {}, names = {}, lasts = {}, damaged = 0 }
  local pass = due_pass(p, math.floor(p.now / interval_ms) * interval_ms, most)
  if pass then
    logs.expect_metrics(p)
    local phase = pass.phase
    local ok = pcall(go_on, p, pass, most, said)
    if not ok then
      -- The names themselves cannot be read: on to those of tables, or to the end.
      said.damaged = said.damaged + 1
      pass.phase, pass.behind = phase + 1, ''
    end
    local n = #said.lasts
    said.lasts[n + 1], said.lasts[n + 2] = PASS_FIELD, write_pass(pass)
    call('HSET', p.tag .. 'snapshots', unpack(said.lasts))
    if #said.records > 0 then logs.append_metrics(p, concat(said.records), #said.records, concat(said.names)) end
    p.dirty = true
  end
  local more = pass and pass.phase ~= DONE and pass.written < most
  return { more and 1 or 0, #said.records, said.damaged, call('HGET', p.tag .. 'counts', 'all') or '' }
end

-- append_process(interval ms, JSON of a process): its snapshot. The process sees to it that there is one a slot.
function snapshots.append_process(p, a, i)
  logs.expect_metrics(p)
  local record = pack(RECORD, OF_PROCESS, 0, tonumber(a[i]), 0, 0, 0, 0, 0, read_totals(nil), FREE, #a[i + 1])
  logs.append_metrics(p, record .. a[i + 1], 1, '')
  return 1
end

-- Writes. The queue or table is gone for good.
function snapshots.forget(p, number)
  -- Not checked before: what stands in the place of snapshots must not undo what is done.
  redis.pcall('HDEL', p.tag .. 'snapshots', number)
end

return snapshots

end)()
