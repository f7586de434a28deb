-- Totals of events by kind, for as long as a queue or table is there, and of all that there ever was. An event of a call is
-- tallied where it is emitted; what a call tallied is added when it ends, by one command that reads and one that writes.

local counts_of = {}

do

-- The numbers of a record, 8 bytes each: those of a queue by the kind of event, then jobs that died; of a table rows put,
-- deleted, expired, in the first three. Of everything, rows' follow behind jobs'.
local TOTALS, ALL_TOTALS = 13, 16

local function read(raw, size)
  if raw and #raw == 8 * size then return raw end
  return string.rep(NO_JOB, size)
end

-- The record with one of its numbers greater by n. A call says little of one queue: the rest is not taken apart.
local function plus(record, index, n)
  local at = 8 * index - 7
  return sub(record, 1, at - 1) .. pack('>I8', unpack_struct('>I8', record, at) + n) .. sub(record, at + 8)
end

-- Nothing here can fail: what stands in the place of the counts must not undo what is done, and is left as it is. A record
-- of a wrong length begins anew.
function counts_of.add(p)
  local fields, n = { 'all' }, 1
  for number in pairs(p.tallies) do
    n = n + 1
    fields[n] = format('%d', number)
  end
  if n == 1 then return end
  local found = redis.pcall('HMGET', p.tag .. 'counts', unpack(fields))
  if found.err then return end
  local all, puts, m = read(found[1], ALL_TOTALS), { 'HSET', p.tag .. 'counts', 'all', '' }, 4
  for k = 2, n do
    local number = tonumber(fields[k])
    local tally, record, of_table = p.tallies[number], read(found[k], TOTALS), number >= FIRST_TABLE
    for kind, more in pairs(tally) do
      if of_table then
        if kind >= EVENT.ROW_PUT and kind <= EVENT.ROW_EXPIRED then
          record = plus(record, kind - EVENT.ROW_PUT + 1, more)
          all = plus(all, kind - EVENT.ROW_PUT + 1 + TOTALS, more)
        end
      elseif kind > NAMED and kind <= TOTALS then
        record, all = plus(record, kind, more), plus(all, kind, more)
      end
    end
    if p.uncounted and p.uncounted[number] then
      call('HDEL', p.tag .. 'counts', fields[k])
    else
      puts[m + 1], puts[m + 2] = fields[k], record
      m = m + 2
    end
  end
  puts[4] = all
  call(unpack(puts, 1, m))
end

-- Writes. The queue or table is not there any more: from now on its events count for everything alone.
function counts_of.forget(p, number)
  p.uncounted = p.uncounted or {}
  p.uncounted[number] = true
  redis.pcall('HDEL', p.tag .. 'snapshots', format('%d', number))
end

end
