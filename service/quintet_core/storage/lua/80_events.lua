-- The event log. An offset counts events; a stream entry holds one call's events and is named by its last offset.

local EVENT_BYTES = 48 -- of EVENT_FORMAT, before the detail

local function last_offset(entry)
  local fields = #entry[2]
  if fields ~= 6 and fields ~= 8 then damaged('event entry of a wrong shape') end
  return tonumber(string.match(entry[1], '^(%d+)-'))
end

local function first_offset(p)
  local head = call('XRANGE', p.tag .. 'events', '-', '+', 'COUNT', 1)[1]
  -- What this call has written already is not in the stream yet.
  if not head then return p.event - #p.events + 1 end
  local last = last_offset(head)
  local events, n, at = head[2][6], 0, 1
  while at <= #events do
    local detail = unpack_struct('>I2', events, at + EVENT_BYTES - 2)
    at = at + EVENT_BYTES + detail
    n = n + 1
  end
  return last - n + 1
end

local function read_consumer(raw)
  if #raw ~= 16 then damaged('consumer of a wrong length') end
  return unpack_struct('>I8I8', raw)
end

-- describe_events(consumer or '') -> { first, last, committed or -1, epoch }
local function describe_events(p, a, i)
  local committed, epoch = '-1', '0'
  if a[i] ~= '' then
    local raw = call('HGET', p.tag .. 'consumers', a[i])
    if raw then
      local o, e = read_consumer(raw)
      committed, epoch = format('%d', o), format('%d', e)
    end
  end
  return { format('%d', first_offset(p)), format('%d', p.event), committed, epoch }
end

-- Few: an entry that carries values may be of many megabytes, and all of a reading are in memory at once.
local ENTRIES_PER_READ = 8

-- read_events(after, limit, carried values wanted) -> { first, last, then entries: last offset, t, n, e ... }, also v (''
-- when there is none) when values are wanted: at least limit events, or all there are, or as many as one reply may hold.
-- A core of before there were tables sends two arguments.
local function read_events(p, a, i)
  local first = first_offset(p)
  local after, limit = tonumber(a[i]), tonumber(a[i + 1])
  local wanted = tonumber(a[i - 1]) > 2 and a[i + 2] == '1'
  if after < first - 1 then return refuse(REASON.TRIMMED, 'first_offset', format('%d', first)) end
  local reply = { format('%d', first), format('%d', p.event) }
  local last, n, bytes, found = after, 2, 0, nil
  repeat
    found = call('XRANGE', p.tag .. 'events', format('(%d-0', last), '+', 'COUNT', ENTRIES_PER_READ)
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

-- commit_offset(consumer, offset, epoch) -> committed offset
local function commit_offset(p, a, i)
  expect(p, 'consumers', 'hash')
  local offset, epoch = tonumber(a[i + 1]), tonumber(a[i + 2])
  local raw = call('HGET', p.tag .. 'consumers', a[i])
  local old, old_epoch = 0, 0
  if raw then old, old_epoch = read_consumer(raw) end
  if epoch < old_epoch then return refuse(REASON.EPOCH, 'epoch', format('%d', old_epoch)) end
  if offset > p.event then return refuse(REASON.INVALID, 'last_offset', format('%d', p.event)) end
  offset = math.max(offset, old)
  call('HSET', p.tag .. 'consumers', a[i], pack('>I8I8', offset, epoch))
  p.dirty = true
  return format('%d', offset)
end

-- trim_events(tail kept without consumers, events kept at most, offset behind which all are kept, up to the cap)
-- -> { first offset, last offset, 1 when the cap cut what a consumer wanted }
-- A core of before events were kept by time sends two arguments.
local function trim_events(p, a, i)
  local tail, cap = tonumber(a[i]), tonumber(a[i + 1])
  local young = tonumber(a[i - 1]) > 2 and tonumber(a[i + 2]) or p.event
  local raw = call('HVALS', p.tag .. 'consumers')
  local keep = p.event - tail
  for k = 1, #raw do keep = math.min(keep, (read_consumer(raw[k]))) end
  local capped = keep < p.event - cap and 1 or 0
  keep = math.max(math.min(keep, young), p.event - cap)
  -- The last entry stays: it holds the offsets that meta must not fall behind.
  keep = math.min(keep, p.event - 1)
  if keep > 0 then
    -- An entry is named by its last offset, so entries wholly at or below keep go.
    call('XTRIM', p.tag .. 'events', 'MINID', format('%d-0', keep + 1))
  end
  return { format('%d', first_offset(p)), format('%d', p.event), capped }
end
