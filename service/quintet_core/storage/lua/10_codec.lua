-- Records. Each begins with fixed fields; struct raises on a value that is too short, which the runner reports as
-- damage. quintet_core.storage.records holds the same formats for the other side.

local BODY = '>I4c8I8I8I8I4I8I4'
local BODY_BYTES = 52

-- { queue, rank, enqueued_at, available_at, expires_at, attempts_max, lease_ms, payload_bytes }; the rest of a body
-- (content type, deduplication key, attributes, payload) is the core's and opaque here.
local function read_body(raw)
  if not raw then damaged('job without a body') end
  if #raw < BODY_BYTES then damaged('short body') end
  local queue, rank, enqueued_at, available_at, expires_at, attempts_max, lease_ms, payload_bytes =
    unpack_struct(BODY, raw)
  return { queue = queue, rank = rank, enqueued_at = enqueued_at, available_at = available_at,
    expires_at = expires_at, attempts_max = attempts_max, lease_ms = lease_ms, payload_bytes = payload_bytes }
end

local RUN = '>BBI4I4c8c8c8I8I8I8I8I8I4I4c8c8BI2'
-- The same, from a token that is a number still.
local NEW_RUN = '>BBI4I4c8c8I8I8I8I8I8I8I4I4c8c8BI2'
local RUN_BYTES = 101

local function write_run(r)
  return pack(RUN, r.state, r.on_close, r.attempts, r.queue, r.rank, r.position, r.token, r.deadline,
    r.leased_at, r.ready_at, r.lease_ms, r.expires_at, r.attempts_max, r.payload_bytes, r.session, r.owner,
    #r.worker, #r.reason) .. r.worker .. r.reason
end

local function read_run(raw)
  if #raw < RUN_BYTES then damaged('short run') end
  local state, on_close, attempts, queue, rank, position, token, deadline, leased_at, ready_at, lease_ms, expires_at,
    attempts_max, payload_bytes, session, owner, worker, reason, at = unpack_struct(RUN, raw)
  if #raw ~= RUN_BYTES + worker + reason then damaged('run of a wrong length') end
  if state < READY or state > DEAD then damaged('run of a wrong state') end
  return { state = state, on_close = on_close, attempts = attempts, queue = queue, rank = rank, position = position,
    token = token, deadline = deadline, leased_at = leased_at, ready_at = ready_at, lease_ms = lease_ms,
    expires_at = expires_at, attempts_max = attempts_max, payload_bytes = payload_bytes, session = session,
    owner = owner, worker = sub(raw, at, at + worker - 1), reason = sub(raw, at + worker) }
end

-- A queue record: paused, paused_until, created_at, name key, then the settings as the core packed them.
local QUEUE = '>BI8I8I2'
local QUEUE_BYTES = 19
local SETTINGS = '>BBI8I8c8c8I8I4I8I8I2'
local SETTINGS_BYTES = 58

local function write_queue(q)
  return pack(QUEUE, q.paused, q.paused_until, q.created_at, #q.name) .. q.name .. q.settings
end

local function read_queue(raw)
  if not raw then damaged('name without a queue') end
  if #raw < QUEUE_BYTES + SETTINGS_BYTES then damaged('short queue') end
  local q, name_bytes, at, flags, letters_bytes = {}, 0, 0, 0, 0
  q.paused, q.paused_until, q.created_at, name_bytes, at = unpack_struct(QUEUE, raw)
  q.name = sub(raw, at, at + name_bytes - 1)
  q.settings = sub(raw, at + name_bytes)
  if #q.settings < SETTINGS_BYTES then damaged('short queue settings') end
  flags, q.structure, q.jobs_max, q.payload_bytes_max, q.rank_min, q.rank_max, q.lease_ms, q.attempts_max,
    q.backoff_ms, q.backoff_max_ms, letters_bytes = unpack_struct(SETTINGS, q.settings)
  if flags % 2 == 0 then q.jobs_max = nil end
  if flags % 4 < 2 then q.payload_bytes_max = nil end
  if flags % 8 < 4 then q.rank_min, q.rank_max = nil, nil end
  q.has_letters = letters_bytes > 0
  return q
end

-- Byte order of two places (by their first 16 bytes, which no two share) or two ranks. Lua's own < follows the locale.
local function precedes(a, b)
  local a1, a2, a3, a4 = unpack_struct('>I4I4I4I4', a)
  local b1, b2, b3, b4 = unpack_struct('>I4I4I4I4', b)
  if a1 ~= b1 then return a1 < b1 end
  if a2 ~= b2 then return a2 < b2 end
  if a3 ~= b3 then return a3 < b3 end
  return a4 < b4
end

local function rank_precedes(a, b)
  local a1, a2 = unpack_struct('>I4I4', a)
  local b1, b2 = unpack_struct('>I4I4', b)
  if a1 ~= b1 then return a1 < b1 end
  return a2 < b2
end

-- A number that was written as text.
local function number_of(text, what)
  local number = text and tonumber(text)
  if not number or number < 0 or number % 1 ~= 0 then damaged(what .. ' is no number') end
  return number
end

local function place_of(rank, position, sequence)
  if position == sequence then return rank .. position end
  return rank .. position .. sequence
end

local function sequence_of(place)
  local n = #place
  if n ~= 16 and n ~= 24 then damaged('place of a wrong length') end
  return sub(place, n - 7)
end
