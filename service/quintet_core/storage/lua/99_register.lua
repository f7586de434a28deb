-- The runner, and the functions Redis sees.

-- A verb that makes Redis's data grow is refused when its memory is full; all else goes on then.
local GROWS, ALWAYS = true, false

local LIST = {
  { 'enqueue', enqueue, GROWS },
  { 'dequeue', dequeue, ALWAYS },
  { 'best', best, ALWAYS },
  { 'acknowledge', acknowledge, ALWAYS },
  { 'release', release, ALWAYS },
  { 'extend', extend, ALWAYS },
  { 'delete', delete, ALWAYS },
  { 'get_job', get_job, ALWAYS },
  { 'list_jobs', list_jobs, ALWAYS },
  { 'create_queue', create_queue_verb, GROWS },
  { 'update_queue', update_queue, GROWS },
  { 'pause', pause, ALWAYS },
  { 'resume', resume, ALWAYS },
  { 'count', count, ALWAYS },
  { 'get_queue', get_queue, ALWAYS },
  { 'list_queues', list_queues, ALWAYS },
  { 'delete_queue', delete_queue, ALWAYS },
  { 'purge', purge, ALWAYS },
  { 'redrive', redrive, ALWAYS },
  { 'redrive_job', redrive_job, ALWAYS },
  { 'create_table', tables.create, GROWS },
  { 'update_table', tables.update, GROWS },
  { 'delete_table', tables.delete, ALWAYS },
  { 'get_table', tables.get, ALWAYS },
  { 'list_tables', tables.list, ALWAYS },
  { 'put_row', rows.put, GROWS },
  { 'get_row', rows.get, ALWAYS },
  { 'delete_row', rows.delete, ALWAYS },
  { 'scan_rows', rows.scan, ALWAYS },
  { 'write_rows', rows.write, GROWS },
  { 'close_owner', close_owner, ALWAYS },
  { 'close_session', close_session, ALWAYS },
  { 'heartbeat', heartbeat, ALWAYS },
  { 'lapse', lapse, ALWAYS },
  { 'settle_due', settle_due, ALWAYS },
  { 'sweep', sweep, ALWAYS },
  { 'letters', letters, ALWAYS },
  { 'dead_letter', dead_letter, ALWAYS },
  { 'describe_events', logs.describe, ALWAYS },
  { 'read_events', logs.read, ALWAYS },
  { 'find_offset', logs.find, ALWAYS },
  { 'commit_offset', logs.commit, ALWAYS },
  { 'trim_events', logs.trim, ALWAYS },
  { 'get_namespace', namespaces.get, ALWAYS },
  { 'update_namespace', namespaces.update, ALWAYS },
  { 'open_consumer', logs.open, ALWAYS },
  { 'list_consumers', logs.list, ALWAYS },
  { 'delete_consumer', logs.forget, ALWAYS },
  { 'take_snapshots', snapshots.take, ALWAYS },
  { 'append_process', snapshots.append_process, ALWAYS },
}

-- No base library while a library loads: neither pairs nor string.
local VERBS, GROWING = {}, {}
for k = 1, #LIST do
  VERBS[LIST[k][1]] = LIST[k][2]
  GROWING[LIST[k][1]] = LIST[k][3]
end

local function caught(problem)
  if type(problem) == 'table' then
    return refuse(REASON.DAMAGED, 'what', tostring(problem.damaged or problem.err))
  end
  problem = tostring(problem)
  -- A key of a wrong type that was only read, and a value that is too short for its record.
  if string.find(problem, 'WRONGTYPE', 1, true) or string.find(problem, 'too short', 1, true) then
    return refuse(REASON.DAMAGED, 'what', problem)
  end
  return refuse(REASON.INTERNAL, 'what', problem)
end

-- (replica (8 bytes), then for each operation: verb, number of arguments, arguments)
-- -> { now, next due time or '', woken (name key, ready jobs, ...), deleted (name keys), answer, answer, ... }
local function run(tag, a, relief)
  bind()
  local opened, p = pcall(open_partition, tag)
  if not opened then return redis.error_reply('DAMAGED ' .. tostring(p.damaged or p.err or p)) end
  local reply, n, i = { 0, '', {}, {} }, 4, 2
  while i <= #a do
    local verb, size = a[i], tonumber(a[i + 1])
    local answer
    if relief and GROWING[verb] then
      answer = refuse(REASON.MEMORY)
    else
      local ok
      ok, answer = pcall(VERBS[verb], p, a, i + 2)
      if not ok then answer = caught(answer) end
    end
    n = n + 1
    reply[n] = answer
    i = i + 2 + size
  end
  reply[3] = close_partition(p, a[1])
  reply[1] = format('%d', p.now)
  reply[2] = p.next_due and format('%d', p.next_due) or ''
  reply[4] = p.deleted or {}
  return reply
end

redis.register_function('batch_v1', function(keys, args) return run(keys[1], args, false) end)

redis.register_function{
  function_name = 'relief_v1',
  callback = function(keys, args) return run(keys[1], args, true) end,
  flags = { 'allow-oom' },
}

-- Each verb as a function of its own: (replica, arguments ...) as a batch of one.
for v = 1, #LIST do
  local verb = LIST[v][1]
  redis.register_function{
    function_name = verb .. '_v1',
    callback = function(keys, args)
      local a = { args[1], verb, #args - 1 }
      for k = 2, #args do a[k + 2] = args[k] end
      return run(keys[1], a, false)
    end,
    flags = LIST[v][3] and {} or { 'allow-oom' },
  }
end

-- Prepares an empty partition; leaves one that is in use as it is.
redis.register_function{
  function_name = 'initialize_v1',
  callback = function(keys)
    bind()
    local meta = keys[1] .. ':meta'
    if call('EXISTS', meta) == 1 then return 0 end
    for _, name in ipairs({ 'jobs', 'names', 'queues', 'tables', 'table_names', 'events', 'metrics' }) do
      if call('EXISTS', keys[1] .. ':' .. name) == 1 then
        return redis.error_reply('DAMAGED meta is missing')
      end
    end
    call('HSET', meta, 'sequence', 0, 'event', 0, 'queue', 0, 'clock', 0)
    return 1
  end,
  flags = { 'allow-oom' },
}

redis.register_function{
  function_name = 'library_version_v1',
  callback = function() return VERSION end,
  flags = { 'no-writes', 'allow-oom', 'allow-stale' },
}
