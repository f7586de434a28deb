-- Rows: put, got, deleted, scanned, and their times to live. A row record is version (8 bytes), expires_at (8 bytes, 0
-- for none), value.

do

local ROW = '>I8I8'
local HEAD_BYTES = 16
rows.HEAD_BYTES = HEAD_BYTES

-- What a put does to the time to live, as quintet.v1.TtlChange numbers it; and, in write_rows, what is no put.
local KEEP, SET, DELETE = 0, 1, 9

-- Options of a put: change of the time to live, time to live, 1 when a version is expected, that version. '' is all zeros.
local function read_options(options)
  if options == '' then return KEEP, 0, nil end
  if #options ~= 18 then damaged('options of a wrong length') end
  local ttl_change, ttl_ms, expects, expected = unpack_struct('>BI8BI8', options)
  return ttl_change, ttl_ms, expects == 1 and expected or nil
end

-- Types of the keys that a change of a row writes to.
local function expect_row_keys(p, t)
  if t.writable then return end
  expect(p, t.rows, 'hash')
  expect(p, t.keys, 'zset')
  t.writable = true
end

-- The same for what has a time to live.
local function expect_expiry_keys(p, t)
  if t.timed then return end
  expect(p, t.expiring, 'zset')
  expect(p, 'due', 'zset')
  due_of(p, t)
  t.timed = true
end

-- version (0: there is none, or its time is over), expires_at, bytes of its value, whether it is to be removed still, the
-- record.
local function look(p, t, key)
  local raw = not t.new and hget(p, t.rows, key)
  if not raw then return 0, 0, 0, false, nil end
  if #raw < HEAD_BYTES then damaged('short row') end
  local version, expires_at = unpack_struct(ROW, raw)
  if version == 0 then damaged('row without a version') end
  if expires_at == 0 or expires_at > p.now then return version, expires_at, #raw - HEAD_BYTES, false, raw end
  return 0, expires_at, #raw - HEAD_BYTES, true, nil
end

-- Writes. The row goes, as the event kind tells.
local function remove_row(p, t, kind, key, expires_at, size)
  hdel(p, t.rows, key)
  zrem(p, t.keys, key)
  if expires_at > 0 then zrem(p, t.expiring, key) end
  if t.count then t.count = t.count - 1 end
  emit(p, kind, t, NO_JOB, NO_JOB, 0, 0, 0, size, 0, key)
end

-- A row whose time is over, met before the timer came.
local function expire(p, t, key, expires_at, size)
  expect_row_keys(p, t)
  expect_expiry_keys(p, t)
  remove_row(p, t, EVENT.ROW_EXPIRED, key, expires_at, size)
end

-- Writes. `version`, `was_at`, `size` and `lapsed` as look told them.
local function store_row(p, t, key, value, expires_at, version, was_at, size, lapsed)
  if lapsed then
    remove_row(p, t, EVENT.ROW_EXPIRED, key, was_at, size)
    was_at = 0
  end
  if version == 0 then
    zadd(p, t.keys, '0', key)
    if t.count then t.count = t.count + 1 end
  end
  local until_at = NO_JOB
  if expires_at > 0 then
    until_at = pack('>I8', expires_at)
    if expires_at ~= was_at then
      zadd(p, t.expiring, format('%d', expires_at), key)
      arm(p, t, expires_at)
    end
  elseif was_at > 0 then
    zrem(p, t.expiring, key)
  end
  if t.carries or (p.spaces and space_of(p, t).values) then
    p.values = p.values or {}
    p.values[#p.values + 1] = value
    emit(p, EVENT.ROW_PUT, t, NO_JOB, until_at, 0, 0, 0, #value, 1, key)
  else
    emit(p, EVENT.ROW_PUT, t, NO_JOB, until_at, 0, 0, 0, #value, 0, key)
  end
  hset(p, t.rows, key, pack('>I8', p.event) .. until_at .. value)
end

-- Carries out what has fallen due in a table: at most MAX_DUE rows, and not many more bytes than a reply may hold; true
-- when there may be more.
function rows.settle(p, t)
  local due = due_of(p, t)
  if not due or due > p.now then return false end
  expect_row_keys(p, t)
  expect_expiry_keys(p, t)
  local keys = zread(p, 'ZRANGEBYSCORE', t.expiring, '-inf', format('%d', p.now), 'LIMIT', 0, MAX_DUE)
  local ends, sizes, bytes, n = {}, {}, 0, 0
  while n < #keys and bytes < MAX_REPLY_BYTES do
    n = n + 1
    local _, expires_at, size, lapsed = look(p, t, keys[n])
    if not lapsed then damaged('expiring key of a row that does not expire') end
    ends[n], sizes[n], bytes = expires_at, size, bytes + size
  end
  for k = 1, n do remove_row(p, t, EVENT.ROW_EXPIRED, keys[k], ends[k], sizes[k]) end
  local head = zread(p, 'ZRANGE', t.expiring, 0, 0, 'WITHSCORES')
  local at = head[2] and tonumber(head[2]) or false
  if at then
    call('ZADD', p.tag .. 'due', format('%d', at), t.number)
    if not p.next_due or at < p.next_due then p.next_due = at end
  else
    call('ZREM', p.tag .. 'due', t.number)
  end
  t.due = at
  p.dirty = true
  return n == MAX_DUE or n < #keys
end

-- Whether a table with a limit has no room for more rows: nil, or the answer to give instead.
local function full(p, t, more)
  if tables.count(p, t) + more <= t.rows_max then return nil end
  if rows.settle(p, t) then return { 'a' } end
  if tables.count(p, t) + more <= t.rows_max then return nil end
  return refuse(REASON.TABLE_FULL, 'max', format('%d', t.rows_max))
end

-- The table that is written to, made when there is none and settings are given: it, or nil and the answer to give instead.
local function writable_table(p, name, settings)
  local t = tables.find(p, name)
  if t then return t end
  if settings == '' then return nil, refuse(REASON.TABLE_NOT_FOUND) end
  t = tables.draft(p, name, settings)
  if not t then return nil, { 'a' } end
  return t
end

local function mismatch(version, ...)
  return refuse(REASON.VERSION, 'version', format('%d', version), ...)
end

-- put_row(name, settings of a table to create or '', options, key, value)
-- -> version, minus the version when there was no such row, or { that, expires_at }
function rows.put(p, a, i)
  local key, value = a[i + 3], a[i + 4]
  local t, instead = writable_table(p, a[i], a[i + 1])
  if not t then return instead end
  local ttl_change, ttl_ms, expected = read_options(a[i + 2])
  local version, was_at, size, lapsed = look(p, t, key)
  if expected and expected ~= version then return mismatch(version) end
  if t.value_bytes_max and #value > t.value_bytes_max then
    return refuse(REASON.PAYLOAD, 'max', format('%d', t.value_bytes_max))
  end
  if t.rows_max and version == 0 then
    if lapsed then
      if rows.settle(p, t) then return { 'a' } end
      was_at, size, lapsed = 0, 0, false
    end
    instead = full(p, t, 1)
    if instead then return instead end
  end
  local expires_at = 0
  if ttl_change == SET then
    expires_at = p.now + ttl_ms
  elseif ttl_change == KEEP and version > 0 then
    expires_at = was_at
  end
  expect_row_keys(p, t)
  if was_at > 0 or expires_at > 0 then expect_expiry_keys(p, t) end
  if t.new then tables.make(p, t) end
  store_row(p, t, key, value, expires_at, version, was_at, size, lapsed)
  local told = version == 0 and -p.event or p.event
  if expires_at > 0 then return { told, format('%d', expires_at) } end
  return told
end

-- get_row(name, key) -> the record
function rows.get(p, a, i)
  local t, key = tables.find(p, a[i]), a[i + 1]
  if not t then return refuse(REASON.TABLE_NOT_FOUND) end
  local _, expires_at, size, lapsed, raw = look(p, t, key)
  if raw then return raw end
  if lapsed then expire(p, t, key, expires_at, size) end
  return refuse(REASON.ROW_NOT_FOUND)
end

-- delete_row(name, key, expected version or '') -> the record as it was
function rows.delete(p, a, i)
  local t, key, expected = tables.find(p, a[i]), a[i + 1], tonumber(a[i + 2])
  if not t then return refuse(REASON.TABLE_NOT_FOUND) end
  local version, expires_at, size, lapsed, raw = look(p, t, key)
  if expected and expected ~= version then return mismatch(version) end
  if lapsed then expire(p, t, key, expires_at, size) end
  if not raw then return refuse(REASON.ROW_NOT_FOUND) end
  expect_row_keys(p, t)
  if expires_at > 0 then expect_expiry_keys(p, t) end
  remove_row(p, t, EVENT.ROW_DELETED, key, expires_at, size)
  return raw
end

-- scan_rows(name, lowest key, highest key (both as ZRANGEBYLEX takes them), limit, keys only) -> { 1 when there may be more,
-- then for each row: key, record; without its value when keys only }
function rows.scan(p, a, i)
  local t = tables.find(p, a[i])
  if not t then return refuse(REASON.TABLE_NOT_FOUND) end
  if rows.settle(p, t) then return { 'a' } end
  local limit, keys_only = tonumber(a[i + 3]), a[i + 4] == '1'
  local keys = zread(p, 'ZRANGEBYLEX', t.keys, a[i + 1], a[i + 2], 'LIMIT', 0, limit)
  local reply, n, k, bytes = { 0 }, 1, 0, 0
  while k < #keys and bytes < MAX_REPLY_BYTES do
    k = k + 1
    local _, _, size, _, raw = look(p, t, keys[k])
    if not raw then damaged('key without its row') end
    -- What is read counts, also when it is not told.
    bytes = bytes + size + #keys[k]
    reply[n + 1], reply[n + 2] = keys[k], keys_only and sub(raw, 1, HEAD_BYTES) or raw
    n = n + 2
  end
  if k == limit or k < #keys then reply[1] = 1 end
  return reply
end

-- One write of several, looked at but not carried out: it and nil, or nil and the refusal.
local function plan_write(p, t, options, key, value)
  local ttl_change, ttl_ms, expected = read_options(options)
  local version, was_at, size, lapsed = look(p, t, key)
  if expected and expected ~= version then return nil, mismatch(version) end
  local w = { key = key, version = version, was_at = was_at, size = size, lapsed = lapsed, expires_at = 0, more = 0 }
  if ttl_change == DELETE then
    if version > 0 then w.more = -1 end
    return w
  end
  if t.value_bytes_max and #value > t.value_bytes_max then
    return nil, refuse(REASON.PAYLOAD, 'max', format('%d', t.value_bytes_max))
  end
  w.value = value
  if version == 0 then w.more = 1 end
  if ttl_change == SET then
    w.expires_at = p.now + ttl_ms
  elseif ttl_change == KEEP and version > 0 then
    w.expires_at = was_at
  end
  return w
end

-- Writes. The version afterwards; 0 when nothing was there to delete.
local function carry_out(p, t, w)
  if w.value then
    store_row(p, t, w.key, w.value, w.expires_at, w.version, w.was_at, w.size, w.lapsed)
    return p.event
  end
  if w.lapsed then remove_row(p, t, EVENT.ROW_EXPIRED, w.key, w.was_at, w.size) end
  if w.version == 0 then return 0 end
  remove_row(p, t, EVENT.ROW_DELETED, w.key, w.was_at, w.size)
  return p.event
end

-- write_rows(name, settings of a table to create or '', n, then n times: options, key, value); no key twice
-- -> versions (8 bytes each) in order
function rows.write(p, a, i)
  local n = tonumber(a[i + 2])
  local t, instead = writable_table(p, a[i], a[i + 1])
  if not t then return instead end
  if t.rows_max and not t.new and rows.settle(p, t) then return { 'a' } end
  local planned, more, timed = {}, 0, false
  for k = 1, n do
    local at = i + 3 * k
    local w, refusal = plan_write(p, t, a[at], a[at + 1], a[at + 2])
    if not w then
      refusal[#refusal + 1], refusal[#refusal + 2] = 'index', tostring(k - 1)
      return refusal
    end
    planned[k], more = w, more + w.more
    timed = timed or w.was_at > 0 or w.expires_at > 0
  end
  instead = t.rows_max and more > 0 and full(p, t, more)
  if instead then return instead end
  expect_row_keys(p, t)
  if timed then expect_expiry_keys(p, t) end
  if t.new then tables.make(p, t) end
  local versions = {}
  for k = 1, n do versions[k] = pack('>I8', carry_out(p, t, planned[k])) end
  return concat(versions)
end

end
