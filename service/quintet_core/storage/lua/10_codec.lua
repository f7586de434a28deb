-- Records. Each begins with fixed fields; struct raises on a value that is too short, which the runner reports as
-- damage. quintet_core.storage.records holds the same formats for the other side.

local BODY = '>I4c8I8I8I8I4I8I4'
local BODY_BYTES = 52

-- { queue, rank, enqueued_at, available_at, expires_at, attempts_max, lease_ms, payload_bytes }; the rest of a body
-- (content type, deduplication key, attributes, payload) is the core's and opaque here.
local function read_body(raw)
  if not raw then damaged('job without a body') end
  if #raw < BODY_BYTES then damaged('short body') end
  local b = {}
  b.queue, b.rank, b.enqueued_at, b.available_at, b.expires_at, b.attempts_max, b.lease_ms, b.payload_bytes =
    struct.unpack(BODY, raw)
  return b
end

local RUN = '>BBI4I4c8c8I8I8I8I8I8I8I4I4c8c8BI2'
local RUN_BYTES = 101

local function write_run(r)
  return struct.pack(RUN, r.state, r.on_close, r.attempts, r.queue, r.rank, r.position, r.token, r.deadline,
    r.leased_at, r.ready_at, r.lease_ms, r.expires_at, r.attempts_max, r.payload_bytes, r.session, r.owner,
    #r.worker, #r.reason) .. r.worker .. r.reason
end

local function read_run(raw)
  if #raw < RUN_BYTES then damaged('short run') end
  local r, worker, reason, at = {}, 0, 0, 0
  r.state, r.on_close, r.attempts, r.queue, r.rank, r.position, r.token, r.deadline, r.leased_at, r.ready_at,
    r.lease_ms, r.expires_at, r.attempts_max, r.payload_bytes, r.session, r.owner, worker, reason, at =
    struct.unpack(RUN, raw)
  if #raw ~= RUN_BYTES + worker + reason then damaged('run of a wrong length') end
  r.worker = string.sub(raw, at, at + worker - 1)
  r.reason = string.sub(raw, at + worker)
  return r
end

-- A queue record: paused, paused_until, created_at, name key, then the settings as the core packed them.
local QUEUE = '>BI8I8I2'
local QUEUE_BYTES = 19
local SETTINGS = '>BBI8I8c8c8I8I4I8I8I2'
local SETTINGS_BYTES = 58

local function write_queue(q)
  return struct.pack(QUEUE, q.paused, q.paused_until, q.created_at, #q.name) .. q.name .. q.settings
end

local function read_queue(raw)
  if not raw then damaged('name without a queue') end
  if #raw < QUEUE_BYTES + SETTINGS_BYTES then damaged('short queue') end
  local q, name_bytes, at, flags, letters_bytes = {}, 0, 0, 0, 0
  q.paused, q.paused_until, q.created_at, name_bytes, at = struct.unpack(QUEUE, raw)
  q.name = string.sub(raw, at, at + name_bytes - 1)
  q.settings = string.sub(raw, at + name_bytes)
  if #q.settings < SETTINGS_BYTES then damaged('short queue settings') end
  flags, q.structure, q.jobs_max, q.payload_bytes_max, q.rank_min, q.rank_max, q.lease_ms, q.attempts_max,
    q.backoff_ms, q.backoff_max_ms, letters_bytes = struct.unpack(SETTINGS, q.settings)
  if flags % 2 == 0 then q.jobs_max = nil end
  if flags % 4 < 2 then q.payload_bytes_max = nil end
  if flags % 8 < 4 then q.rank_min, q.rank_max = nil, nil end
  q.has_letters = letters_bytes > 0
  return q
end

-- Byte order of two strings by their first n * 4 bytes. Lua's own < follows the locale.
local function precedes(a, b, words)
  for i = 0, words - 1 do
    local x, y = struct.unpack('>I4', a, i * 4 + 1), struct.unpack('>I4', b, i * 4 + 1)
    if x ~= y then return x < y end
  end
  return false
end

local function place_of(rank, position, sequence)
  if position == sequence then return rank .. position end
  return rank .. position .. sequence
end

local function sequence_of(place)
  local n = #place
  if n ~= 16 and n ~= 24 then damaged('place of a wrong length') end
  return string.sub(place, n - 7)
end
