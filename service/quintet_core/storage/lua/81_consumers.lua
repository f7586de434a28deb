-- Named consumers of a log: how far each has come, and under which epoch.

do

-- commit_offset(consumer, offset, epoch, log, consumers at most) -> committed offset. A core of before there were two logs
-- leaves out the last two.
function logs.commit(p, a, i)
  local log = logs.named(p, a, i, 3)
  expect(p, log.consumers, 'hash')
  local offset, epoch = tonumber(a[i + 1]), tonumber(a[i + 2])
  local raw = call('HGET', p.tag .. log.consumers, a[i])
  local old, old_epoch = 0, 0
  if raw then
    old, old_epoch = logs.read_consumer(raw)
  elseif tonumber(a[i - 1]) > 4 then
    local refusal = logs.too_many(p, log, a[i + 4])
    if refusal then return refusal end
  end
  if epoch < old_epoch then return refuse(REASON.EPOCH, 'epoch', format('%d', old_epoch)) end
  if offset > log.last then return refuse(REASON.INVALID, 'last_offset', format('%d', log.last)) end
  offset = math.max(offset, old)
  call('HSET', p.tag .. log.consumers, a[i], pack('>I8I8', offset, epoch))
  p.dirty = true
  return format('%d', offset)
end

-- Whether there is no room for one more consumer: nil, or the refusal.
function logs.too_many(p, log, most)
  if call('HLEN', p.tag .. log.consumers) < tonumber(most) then return nil end
  return refuse(REASON.LIMIT, 'limit', 'consumers', 'max', most)
end

-- Where a consumer begins: '' at the oldest record, 'latest' behind the newest, else behind an offset. It, or nil and the
-- refusal.
local function start_of(p, log, start)
  local first = logs.first_offset(p, log)
  if start == '' then return first - 1 end
  if start == 'latest' then return log.last end
  local offset = tonumber(start)
  if offset < first - 1 then return nil, refuse(REASON.TRIMMED, 'first_offset', format('%d', first)) end
  if offset > log.last then return nil, refuse(REASON.INVALID, 'last_offset', format('%d', log.last)) end
  return offset
end

-- open_consumer(consumer, epoch, 1 to find an epoch above that one and all others given here, start of a new one, 1 to
-- start anew, consumers at most, log) -> { epoch, then what describe_events tells }
function logs.open(p, a, i)
  local log = logs.named(p, a, i, 6)
  expect(p, log.consumers, 'hash')
  local key, epoch = p.tag .. log.consumers, tonumber(a[i + 1])
  local raw = call('HGET', key, a[i])
  local offset, old_epoch, refusal = nil, 0, nil
  if raw then offset, old_epoch = logs.read_consumer(raw) end
  local given = log.key .. '_epoch'
  if a[i + 2] == '1' then
    local last = number_of(call('HGET', p.tag .. 'meta', given) or '0', 'meta epoch')
    epoch = math.max(last, epoch, old_epoch) + 1
  elseif epoch < old_epoch then
    return refuse(REASON.EPOCH, 'epoch', format('%d', old_epoch))
  end
  if not raw then
    refusal = logs.too_many(p, log, a[i + 5])
    if refusal then return refusal end
  end
  if not raw or a[i + 4] == '1' then
    offset, refusal = start_of(p, log, a[i + 3])
    if refusal then return refusal end
  end
  local told = logs.describe_log(p, log, '')
  if a[i + 2] == '1' then call('HSET', p.tag .. 'meta', given, format('%d', epoch)) end
  call('HSET', key, a[i], pack('>I8I8', offset, epoch))
  p.dirty = true
  told[3], told[4] = format('%d', offset), format('%d', epoch)
  return { told[4], told[1], told[2], told[3], told[4], told[5], told[6] }
end

-- list_consumers(log) -> { last offset, then for each: name, offset (8 bytes) and epoch (8 bytes) }
function logs.list(p, a, i)
  local log = logs.named(p, a, i, 0)
  local found = call('HGETALL', p.tag .. log.consumers)
  for k = 2, #found, 2 do logs.read_consumer(found[k]) end
  table.insert(found, 1, format('%d', log.last))
  return found
end

-- delete_consumer(consumer, log) -> 1, 0 when there is none
function logs.forget(p, a, i)
  local log = logs.named(p, a, i, 1)
  expect(p, log.consumers, 'hash')
  local gone = call('HDEL', p.tag .. log.consumers, a[i])
  if gone == 1 then p.dirty = true end
  return gone
end

end
