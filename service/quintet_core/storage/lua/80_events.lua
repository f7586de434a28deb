-- The logs: events, and metrics under the same contract. An offset counts records, 1, 2, 3, ... without gaps; a stream
-- entry holds those of one call and is named by the offset of its last one.
--
-- The verbs take the name of a log as their last argument. A core of before there were two leaves it out.

local logs = {}

do

local EVENTS, METRICS = 'events', 'metrics'
local CONSUMERS = { events = 'consumers', metrics = 'metrics_consumers' }
-- Of a record, before its detail; the last two bytes of that are the length of the detail.
local FIXED_BYTES = { events = 48, metrics = 175 }

local function last_offset(entry)
  local fields = #entry[2]
  if fields ~= 6 and fields ~= 8 then damaged('log entry of a wrong shape') end
  return tonumber(string.match(entry[1], '^(%d+)-'))
end

-- { stream, its consumers, bytes of a record before the detail, last offset, how many records this call has written
-- that are not in the stream yet }. Reads; may raise.
local function log_of(p, name)
  if name ~= METRICS then
    return { key = EVENTS, consumers = CONSUMERS.events, fixed = FIXED_BYTES.events, last = p.event,
      pending = #p.events }
  end
  local log = p.metrics_log
  if not log then
    local last = number_of(call('HGET', p.tag .. 'meta', 'metric') or '0', 'meta metric')
    log = { key = METRICS, consumers = CONSUMERS.metrics, fixed = FIXED_BYTES.metrics, last = last, pending = 0 }
    -- Also says that it is a stream.
    if #call('XRANGE', p.tag .. METRICS, format('(%d-0', last), '+', 'COUNT', 1) > 0 then
      damaged('metrics are ahead of meta')
    end
    p.metrics_log = log
  end
  return log
end

-- Which log the argument behind the first `old` of a verb names.
local function named_log(p, a, i, old)
  return log_of(p, tonumber(a[i - 1]) > old and a[i + old] or EVENTS)
end

-- Before the first write of an operation that appends to the metrics log: everything that could be in the way.
function logs.expect_metrics(p)
  log_of(p, METRICS)
end

-- Writes. One entry of `count` records, packed one behind another, with the names that their numbers stand for
-- (number, bytes of the name key, name key; each number once). logs.expect_metrics was called before.
function logs.append_metrics(p, records, count, names)
  local log = log_of(p, METRICS)
  log.last = log.last + count
  call('HSET', p.tag .. 'meta', 'metric', format('%d', log.last))
  call('XADD', p.tag .. METRICS, format('%d-0', log.last), 't', format('%d', p.now), 'n', names, 'e', records)
  -- So that the clock is kept: times in the log never fall.
  p.dirty = true
end

local function first_entry(p, log)
  return call('XRANGE', p.tag .. log.key, '-', '+', 'COUNT', 1)[1]
end

local function first_of(log, head)
  -- What this call has written already is not in the stream yet.
  if not head then return log.last - log.pending + 1 end
  local last = last_offset(head)
  local records, n, at, fixed = head[2][6], 0, 1, log.fixed
  while at <= #records do
    local detail = unpack_struct('>I2', records, at + fixed - 2)
    at = at + fixed + detail
    n = n + 1
  end
  return last - n + 1
end

local function first_offset(p, log)
  return first_of(log, first_entry(p, log))
end

local function read_consumer(raw)
  if #raw ~= 16 then damaged('consumer of a wrong length') end
  return unpack_struct('>I8I8', raw)
end

local function time_of(entry)
  return number_of(entry[2][2], 'time of a log entry')
end

-- When the oldest and the newest record were written; 0 where there is none.
local function span(p, log, head)
  local newest = log.pending > 0 and p.now or 0
  if not head then return newest, newest end
  if newest == 0 then
    local tail = call('XREVRANGE', p.tag .. log.key, '+', '-', 'COUNT', 1)[1]
    last_offset(tail)
    newest = time_of(tail)
  end
  return time_of(head), newest
end

local function describe_log(p, log, consumer)
  local committed, epoch = '-1', '0'
  if consumer ~= '' then
    local raw = call('HGET', p.tag .. log.consumers, consumer)
    if raw then
      local o, e = read_consumer(raw)
      committed, epoch = format('%d', o), format('%d', e)
    end
  end
  local head = first_entry(p, log)
  local oldest, newest = span(p, log, head)
  return { format('%d', first_of(log, head)), format('%d', log.last), committed, epoch, format('%d', oldest),
    format('%d', newest) }
end

-- describe_events(consumer or '', log) -> { first, last, committed or -1, epoch, time of the oldest, of the newest }; a core
-- that names no log wants the first four.
function logs.describe(p, a, i)
  local told = describe_log(p, named_log(p, a, i, 1), a[i])
  if tonumber(a[i - 1]) < 2 then told[5], told[6] = nil, nil end
  return told
end

-- Few: an entry that carries values may be of many megabytes, and all of a reading are in memory at once.
local ENTRIES_PER_READ = 8

-- read_events(after, limit, carried values wanted, log) -> { first, last, then entries: last offset, t, n, e ... }, also v
-- ('' when there is none) when values are wanted: at least limit records, or all there are, or as many as one reply may
-- hold. A core of before there were tables sends two arguments.
function logs.read(p, a, i)
  local log = named_log(p, a, i, 3)
  local first = first_offset(p, log)
  local after, limit = tonumber(a[i]), tonumber(a[i + 1])
  local wanted = tonumber(a[i - 1]) > 2 and a[i + 2] == '1'
  if after < first - 1 then return refuse(REASON.TRIMMED, 'first_offset', format('%d', first)) end
  local reply = { format('%d', first), format('%d', log.last) }
  local last, n, bytes, found = after, 2, 0, nil
  repeat
    found = call('XRANGE', p.tag .. log.key, format('(%d-0', last), '+', 'COUNT', ENTRIES_PER_READ)
    local k = 0
    while k < #found and bytes < MAX_REPLY_BYTES do
      k = k + 1
      last = last_offset(found[k])
      local fields = found[k][2]
      reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = found[k][1], fields[2], fields[4], fields[6]
      n, bytes = n + 4, bytes + #fields[4] + #fields[6]
      if wanted then
        n = n + 1
        reply[n] = fields[8] or ''
        bytes = bytes + #reply[n]
      end
    end
  until #found < ENTRIES_PER_READ or last - after >= limit or bytes >= MAX_REPLY_BYTES
  return reply
end

-- find_offset(epoch ms, log) -> the offset behind which all records are as young as that, or younger. An entry is found
-- by halves: times never fall.
function logs.find(p, a, i)
  local log, at_ms = named_log(p, a, i, 1), tonumber(a[i])
  local low, high = first_offset(p, log) - 1, log.last - log.pending
  while low < high do
    local middle = low + math.ceil((high - low) / 2)
    local entry = call('XRANGE', p.tag .. log.key, format('%d-0', middle), '+', 'COUNT', 1)[1]
    if not entry then damaged('log ends before its last offset') end
    local last = last_offset(entry)
    if time_of(entry) < at_ms then low = last else high = middle - 1 end
  end
  return format('%d', low)
end

-- trim_events(tail kept without consumers, records kept at most, offset behind which all are kept, up to the cap, log)
-- -> { first offset, last offset, 1 when the cap cut what a consumer wanted }, and when a log is named also for each
-- consumer: its name, its offset. A core of before events were kept by time sends two arguments.
function logs.trim(p, a, i)
  local log = named_log(p, a, i, 3)
  local tail, cap = tonumber(a[i]), tonumber(a[i + 1])
  local young = tonumber(a[i - 1]) > 2 and tonumber(a[i + 2]) or log.last
  local raw = call('HGETALL', p.tag .. log.consumers)
  local keep = log.last - tail
  for k = 1, #raw, 2 do
    raw[k + 1] = read_consumer(raw[k + 1])
    keep = math.min(keep, raw[k + 1])
  end
  local capped = keep < log.last - cap and 1 or 0
  keep = math.max(math.min(keep, young), log.last - cap)
  -- The last entry stays: it holds the offsets that meta must not fall behind.
  keep = math.min(keep, log.last - 1)
  -- An entry is named by its last offset, so entries wholly at or below keep go.
  local gone = keep > 0 and call('XTRIM', p.tag .. log.key, 'MINID', format('%d-0', keep + 1)) or 0
  local first = first_offset(p, log)
  if gone > 0 then call('HSET', p.tag .. 'meta', log.key .. '_trimmed', format('%d', first - 1)) end
  local reply = { format('%d', first), format('%d', log.last), capped }
  if tonumber(a[i - 1]) > 3 then
    for k = 1, #raw, 2 do
      reply[#reply + 1] = raw[k]
      reply[#reply + 1] = format('%d', raw[k + 1])
    end
  end
  return reply
end

logs.named, logs.describe_log, logs.first_offset, logs.read_consumer = named_log, describe_log, first_offset, read_consumer

end
