-- What holds for all queues and tables of a namespace, in this partition.

local namespaces = {}

-- get_namespace(namespace) -> flags
function namespaces.get(p, a, i)
  local raw = call('HGET', p.tag .. 'namespaces', a[i])
  if raw and #raw ~= 1 then damaged('namespace of a wrong length') end
  return raw and string.byte(raw) or 0
end

-- update_namespace(namespace, flags, namespaces at most that have any) -> flags
function namespaces.update(p, a, i)
  expect(p, 'namespaces', 'hash')
  local key, flags = p.tag .. 'namespaces', tonumber(a[i + 1])
  if flags == 0 then
    call('HDEL', key, a[i])
  else
    if call('HEXISTS', key, a[i]) == 0 and call('HLEN', key) >= tonumber(a[i + 2]) then
      return refuse(REASON.LIMIT, 'limit', 'namespaces', 'max', a[i + 2])
    end
    call('HSET', key, a[i], string.char(flags))
  end
  local held = call('HLEN', key)
  call('HSET', p.tag .. 'meta', 'namespaces', held)
  -- A table of its own: what was known of queues is known no more.
  p.spaces = held > 0 and {} or nil
  p.dirty = true
  return flags
end
