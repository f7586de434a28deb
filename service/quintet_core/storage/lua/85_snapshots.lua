-- Snapshots: once a slot of time, what each queue and table of the partition looks like, as records of the metrics log.
-- Many cores ask; each queue is written once a slot. The work goes in steps: where the last step ended stands beside what
-- it wrote, so that any core goes on there, also after a crash.

-- A chunk of Lua has at most 200 locals: those of this file are a function's.
local snapshots = (function()

local snapshots = {}

local RECORD = '>BI4I8I8I8I8I8I8c104c16I2'
local OF_QUEUE, OF_TABLE, OF_PROCESS = 1, 2, 3
-- Totals of a record; numbers are kept free behind them.
local TOTALS_FORMAT, TOTALS_BYTES = '>I8I8I8I8I8I8I8I8I8I8I8I8I8', 104
local FREE = NO_JOB .. NO_JOB
local NO_TOTALS = FREE .. FREE .. FREE .. FREE .. FREE .. FREE .. NO_JOB
local BEHIND_EACH = '\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255'

-- Names one step looks at, so many together, and records it writes.
local LOOKS, LOOKS_TOGETHER, WRITES = 500, 50, 50
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
-- Of a queue or table: when it was written last, 1 when nothing had happened in it even then; the sum of its totals;
-- ready, delayed, leased, dead, and since when the oldest of the first is ready, 0 for none. While the sum is the same, so
-- are they: whatever changes them is counted.
local LAST, LAST_BYTES = '>I8BI8I8I8I8I8I8', 57

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

-- As kept in counts: number -> the totals in the order of a record; 'all' -> those of everything there ever was. Totals,
-- their sum.
local function read_totals(raw)
  if not raw or #raw < TOTALS_BYTES then return NO_TOTALS, 0 end
  local a, b, c, d, e, f, g, h, i, j, k, l, m = unpack_struct(TOTALS_FORMAT, raw)
  return sub(raw, 1, TOTALS_BYTES), a + b + c + d + e + f + g + h + i + j + k + l + m
end

-- Since when a ready job is.
local function ready_since(p, sequence)
  local run = hget(p, 'runs', sequence)
  if run then return read_run(run).ready_at end
  return read_body(hget(p, 'jobs', sequence)).available_at
end

-- Since when the oldest of the jobs that are first of their rank has been ready; 0: there is none.
local function oldest_ready(p, ready)
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
  return oldest or 0
end

-- ready, delayed, leased, dead, since when the oldest is ready
local function look_at_queue(p, number)
  local base = 'q' .. number .. ':'
  local ready = zread(p, 'ZCARD', base .. 'ready')
  return ready, zread(p, 'ZCARD', base .. 'delayed'), zread(p, 'ZCARD', base .. 'leased'),
    zread(p, 'ZCARD', base .. 'dead'), ready > 0 and oldest_ready(p, base .. 'ready') or 0
end

local function look_at_table(p, number)
  return zread(p, 'ZCARD', 't' .. number .. ':keys'), 0, 0, 0, 0
end

-- The record of one queue or table and what is remembered of it; nil when it is not to be written now.
local function describe(p, pass, number, totals_raw, last_raw)
  local kind = pass.phase == IN_QUEUES and OF_QUEUE or OF_TABLE
  local totals, sum = read_totals(totals_raw)
  local interval_ms, same = 0, false
  local ready, delayed, leased, dead, since
  if last_raw and #last_raw == LAST_BYTES then
    local last_at, quiet, last_sum
    last_at, quiet, last_sum, ready, delayed, leased, dead, since = unpack_struct(LAST, last_raw)
    if last_at >= pass.slot then return nil end
    interval_ms = p.now - last_at
    same = sum == last_sum
    -- What it has done last is told, and then once that it does nothing.
    if same and quiet == 1 and ready + delayed + leased + dead == 0 and interval_ms < IDLE_MS then return nil end
  end
  local numeral = number_of(number, 'number')
  if (numeral >= FIRST_TABLE) ~= (kind == OF_TABLE) then damaged('number of another kind') end
  if not same then
    local look = kind == OF_QUEUE and look_at_queue or look_at_table
    ready, delayed, leased, dead, since = look(p, number)
  end
  local age = since > 0 and since < p.now and p.now - since or 0
  return pack(RECORD, kind, numeral, interval_ms, ready, delayed, leased, dead, age, totals, FREE, 0),
    pack(LAST, p.now, (same or interval_ms == 0) and 1 or 0, sum, ready, delayed, leased, dead, since)
end

-- The names behind where the pass is, and what is known of each: name keys, numbers, totals, last snapshots.
local function next_names(p, pass)
  local phase = PHASES[pass.phase]
  local low = pass.behind ~= '' and '(' .. pass.behind or '-'
  local names = call('ZRANGEBYLEX', p.tag .. phase.index, low, '+', 'LIMIT', 0, LOOKS_TOGETHER)
  if #names == 0 then return names end
  local numbers = call('HMGET', p.tag .. phase.names, unpack(names))
  local asked = {}
  for k = 1, #names do asked[k] = numbers[k] or '' end
  return names, asked, call('HMGET', p.tag .. 'counts', unpack(asked)), call('HMGET', p.tag .. 'snapshots', unpack(asked))
end

-- Looks at some names. Appends what it finds to `said` and moves the pass on; does not write. How many it looked at.
local function look_on(p, pass, most, said)
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
  if looked == #names and #names < LOOKS_TOGETHER then pass.phase, pass.behind = pass.phase + 1, '' end
  return looked
end

local function go_on(p, pass, most, said)
  local looked = 0
  while pass.phase ~= DONE and looked < LOOKS and #said.records < WRITES and pass.written < most do
    local ok, some = pcall(look_on, p, pass, most, said)
    if ok then
      looked = looked + some
    else
      -- The names themselves cannot be read: on to those of tables, or to the end.
      said.damaged = said.damaged + 1
      pass.phase, pass.behind = pass.phase + 1, ''
    end
  end
end

-- Where the work stands; `due` when there is some in this slot. Where the last pass has ended, and a slot with it, a new
-- one begins.
local function due_pass(p, slot, most)
  local pass = read_pass(p)
  if pass.phase == DONE then
    if slot <= pass.began then return pass end
    pass.began, pass.phase, pass.behind = slot, IN_QUEUES, ''
  end
  if slot > pass.slot then pass.slot, pass.written = slot, 0 end
  pass.due = pass.written < most
  return pass
end

-- What there is to do behind a step: nothing until the next slot, more in this one, more that has to wait for the next.
local NOTHING, MORE, REST = 0, 1, 2

-- take_snapshots(interval ms, most records of a slot) -> { what is left, records written, queues and tables that could not
-- be read, the totals of the partition, last offset of the metrics, the clock }
function snapshots.take(p, a, i)
  local interval_ms, most = tonumber(a[i]), tonumber(a[i + 1])
  expect(p, 'snapshots', 'hash')
  expect(p, 'counts', 'hash')
  local said = { records = {}, names = {}, lasts = {}, damaged = 0 }
  local slot = math.floor(p.now / interval_ms) * interval_ms
  local pass = due_pass(p, slot, most)
  logs.expect_metrics(p)
  local left = NOTHING
  if pass.due then
    go_on(p, pass, most, said)
    local n = #said.lasts
    said.lasts[n + 1], said.lasts[n + 2] = PASS_FIELD, write_pass(pass)
    call('HSET', p.tag .. 'snapshots', unpack(said.lasts))
    if #said.records > 0 then logs.append_metrics(p, concat(said.records), #said.records, concat(said.names)) end
    p.dirty = true
  end
  if pass.phase ~= DONE or pass.began < slot then left = pass.written < most and MORE or REST end
  return { left, #said.records, said.damaged, call('HGET', p.tag .. 'counts', 'all') or '',
    format('%d', p.metrics_log.last), format('%d', p.now) }
end

-- append_process(interval ms, JSON of a process): its snapshot. The process sees to it that there is one a slot.
function snapshots.append_process(p, a, i)
  logs.expect_metrics(p)
  local record = pack(RECORD, OF_PROCESS, 0, tonumber(a[i]), 0, 0, 0, 0, 0, NO_TOTALS, FREE, #a[i + 1])
  logs.append_metrics(p, record .. a[i + 1], 1, '')
  return 1
end

return snapshots

end)()
