-- Tables as wholes: found, made, changed, listed, deleted.

local tables, rows = {}, {}

-- A chunk of Lua has at most 200 locals: those of this file end with it.
do

local TABLE, TABLE_BYTES = '>I8I2', 10
local LIMITS, LIMITS_BYTES = '>BI8I8', 17

-- A table record: created_at, name key, then the settings as the core packed them.
function tables.read(raw)
  if not raw then damaged('name without a table') end
  if #raw < TABLE_BYTES + LIMITS_BYTES then damaged('short table') end
  local t, name_bytes, at, flags = {}, 0, 0, 0
  t.created_at, name_bytes, at = unpack_struct(TABLE, raw)
  if #raw ~= TABLE_BYTES + name_bytes + LIMITS_BYTES then damaged('table of a wrong length') end
  t.name, t.settings = sub(raw, at, at + name_bytes - 1), sub(raw, at + name_bytes)
  flags, t.rows_max, t.value_bytes_max = unpack_struct(LIMITS, t.settings)
  if flags % 2 == 0 then t.rows_max = nil end
  if flags % 4 < 2 then t.value_bytes_max = nil end
  t.carries = flags % 8 >= 4
  return t
end

function tables.write(t)
  return pack(TABLE, t.created_at, #t.name) .. t.name .. t.settings
end

local function name_row_keys(t, number)
  local base = format('t%d:', number)
  t.number, t.rows, t.keys, t.expiring = number, base .. 'rows', base .. 'keys', base .. 'expiring'
  return t
end

function tables.adopt(p, number, raw)
  local t = tables.read(raw)
  local other = p.tables and p.tables[t.name]
  if other and other.number ~= number then damaged('two tables of one name') end
  name_row_keys(t, number)
  if not p.tables then p.tables, p.numbered_tables = {}, {} end
  p.tables[t.name], p.numbered_tables[number] = t, t
  return t
end

function tables.forget(p, t)
  p.tables[t.name], p.numbered_tables[t.number] = nil, nil
end

local function table_number(text)
  local number = number_of(text, 'table number')
  if number < FIRST_TABLE then damaged('table number of a queue') end
  return number
end

-- The table behind a name key, or nil.
function tables.find(p, name)
  local t = p.tables and p.tables[name]
  if t then return t end
  local number = call('HGET', p.tag .. 'table_names', name)
  if not number then return nil end
  t = tables.adopt(p, table_number(number), call('HGET', p.tag .. 'tables', number))
  if t.name ~= name then damaged('table under a wrong name') end
  return t
end

-- The table with a number, or nil when it was deleted.
function tables.numbered(p, number)
  local t = p.numbered_tables and p.numbered_tables[number]
  if t then return t end
  local raw = call('HGET', p.tag .. 'tables', format('%d', number))
  return raw and tables.adopt(p, number, raw) or nil
end

local function expect_table_keys(p)
  expect(p, 'table_names', 'hash')
  expect(p, 'table_index', 'zset')
  expect(p, 'tables', 'hash')
  expect(p, 'dropping', 'hash')
end

-- Whether rows of an earlier table of this name are left. Some go now; a name that was found so in this call stays so, or
-- an operation would overtake one before it that has to ask again.
local function is_dropping(p, name)
  local held = p.held and p.held[name]
  if held then return true end
  local number = call('HGET', p.tag .. 'dropping', name)
  if not number or tables.drop(p, name, number, MAX_DUE) then return false end
  p.held = p.held or {}
  p.held[name] = true
  return true
end

-- A table that is not there yet, everything checked that its making touches; nil when rows of an earlier table of that
-- name have to go first. The caller has found that the name is free.
function tables.draft(p, name, settings)
  if #settings ~= LIMITS_BYTES then damaged('table settings of a wrong length') end
  expect_table_keys(p)
  expect(p, 'due', 'zset')
  local t = name_row_keys(tables.read(tables.write({ created_at = p.now, name = name, settings = settings })),
    FIRST_TABLE + p.queue + 1)
  if call('HEXISTS', p.tag .. 'tables', format('%d', t.number)) == 1 or redis_type(p, t.rows) ~= 'none'
    or redis_type(p, t.keys) ~= 'none' or redis_type(p, t.expiring) ~= 'none' then
    damaged('meta queue is behind')
  end
  if is_dropping(p, name) then return nil end
  t.new, t.count = true, 0
  return t
end

-- Writes.
function tables.make(p, t)
  p.queue = p.queue + 1
  local number = format('%d', t.number)
  call('HSET', p.tag .. 'table_names', t.name, number)
  call('ZADD', p.tag .. 'table_index', 0, t.name)
  call('HSET', p.tag .. 'tables', number, tables.write(t))
  if not p.tables then p.tables, p.numbered_tables = {}, {} end
  p.tables[t.name], p.numbered_tables[t.number] = t, t
  t.new = false
  emit_of_queue(p, EVENT.TABLE_CREATED, t)
end

function tables.count(p, t)
  if not t.count then t.count = zread(p, 'ZCARD', t.keys) end
  return t.count
end

-- What a reader is told of a table: name key, created_at, settings, rows.
local function describe_table(p, t)
  return { t.name, format('%d', t.created_at), t.settings, tables.count(p, t) }
end

-- create_table(name, settings)
function tables.create(p, a, i)
  if tables.find(p, a[i]) then return refuse(REASON.TABLE_EXISTS) end
  local t = tables.draft(p, a[i], a[i + 1])
  if not t then return { 'a' } end
  tables.make(p, t)
  return describe_table(p, t)
end

-- update_table(name, settings)
function tables.update(p, a, i)
  if #a[i + 1] ~= LIMITS_BYTES then damaged('table settings of a wrong length') end
  local t = tables.find(p, a[i])
  if not t then return refuse(REASON.TABLE_NOT_FOUND) end
  expect_table_keys(p)
  -- May read, so before the write.
  local count = tables.count(p, t)
  t.settings = a[i + 1]
  local raw = tables.write(t)
  call('HSET', p.tag .. 'tables', format('%d', t.number), raw)
  tables.forget(p, t)
  t = tables.adopt(p, t.number, raw)
  t.count = count
  emit_of_queue(p, EVENT.TABLE_UPDATED, t)
  return describe_table(p, t)
end

-- get_table(name)
function tables.get(p, a, i)
  local t = tables.find(p, a[i])
  if not t then return refuse(REASON.TABLE_NOT_FOUND) end
  if rows.settle(p, t) then return { 'a' } end
  return describe_table(p, t)
end

-- list_tables(first name key, past the last ('' for none), after a name key ('' for the first page), limit)
function tables.list(p, a, i)
  local low = a[i + 2] ~= '' and '(' .. a[i + 2] or '[' .. a[i]
  local high = a[i + 1] ~= '' and '(' .. a[i + 1] or '+'
  local names = call('ZRANGEBYLEX', p.tag .. 'table_index', low, high, 'LIMIT', 0, tonumber(a[i + 3]))
  local reply = {}
  for k = 1, #names do
    local t = tables.find(p, names[k])
    if not t then damaged('listed name without a table') end
    reply[k] = describe_table(p, t)
  end
  return reply
end

local function unlink_rows(p, t)
  p.hashes[t.rows], p.zsets[t.keys], p.zsets[t.expiring] = nil, nil, nil
  call('UNLINK', p.tag .. t.rows, p.tag .. t.keys, p.tag .. t.expiring)
end

-- delete_table(name) -> rows in it. The rows themselves go in steps, by sweep.
function tables.delete(p, a, i)
  local t = tables.find(p, a[i])
  if not t then return refuse(REASON.TABLE_NOT_FOUND) end
  expect_table_keys(p)
  expect(p, 'due', 'zset')
  local count, number = tables.count(p, t), format('%d', t.number)
  if count > 0 then call('HSET', p.tag .. 'dropping', t.name, number) else unlink_rows(p, t) end
  call('HDEL', p.tag .. 'table_names', t.name)
  call('ZREM', p.tag .. 'table_index', t.name)
  call('HDEL', p.tag .. 'tables', number)
  call('ZREM', p.tag .. 'due', number)
  tables.forget(p, t)
  counts_of.forget(p, t.number)
  emit_of_queue(p, EVENT.TABLE_DELETED, t, format('%d', count))
  return count
end

local DROPPED = 2 -- in the place of an event's state: the row went with its table

-- Removes at most limit rows of a deleted table, whatever state they are in. True when it was the last of them.
function tables.drop(p, name, number, limit)
  local t = name_row_keys({ name = name }, table_number(number))
  expect(p, t.rows, 'hash')
  expect(p, t.keys, 'zset')
  expect(p, t.expiring, 'zset')
  local keys, sizes = zread(p, 'ZRANGE', t.keys, 0, limit - 1), {}
  for k = 1, #keys do sizes[k] = math.max(0, hread(p, 'HSTRLEN', t.rows, keys[k]) - rows.HEAD_BYTES) end
  counts_of.forget(p, t.number)
  for k = 1, #keys do
    hdel(p, t.rows, keys[k])
    zrem(p, t.keys, keys[k])
    zrem(p, t.expiring, keys[k])
    emit(p, EVENT.ROW_DELETED, t, NO_JOB, NO_JOB, 0, 0, 0, sizes[k], DROPPED, keys[k])
  end
  if #keys == limit then return false end
  unlink_rows(p, t)
  call('HDEL', p.tag .. 'dropping', name)
  p.dirty = true
  return true
end

-- Some rows of some deleted table go. True when there may be more. What is wrong with one table must not keep the others.
function tables.sweep(p)
  expect(p, 'dropping', 'hash')
  local found = call('HSCAN', p.tag .. 'dropping', '0', 'COUNT', 10)
  local problem
  for k = 1, #found[2], 2 do
    local ok, finished = pcall(tables.drop, p, found[2][k], found[2][k + 1], MAX_STEP)
    if ok then return not finished or #found[2] > 2 or found[1] ~= '0' end
    problem = problem or finished
  end
  if problem then error(problem, 0) end
  return false
end

end
