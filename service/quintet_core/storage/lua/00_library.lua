-- The state machine of one partition: queues, jobs, leases, sessions, tables, rows and the event log.
--
-- Every function takes one key, the partition's hash tag ("{p03}"), and builds the partition's other keys from it, so
-- one call touches one slot of a Redis Cluster. The functions run a list of operations; each operation checks
-- everything it is going to touch, then writes: after its first write nothing in it can fail.
--
-- Keys of a partition, behind "{pNN}:"
--   meta            hash    sequence, event, queue, metric: the last number given out; clock: the latest time seen (epoch
--                           ms); events_trimmed, metrics_trimmed: up to where a log was cut; events_epoch,
--                           metrics_epoch: the last one that a consumer was opened with (in partition 0)
--   names           hash    name key -> queue number. A name key is 1 byte namespace length, namespace, queue name
--   index           zset    name keys, score 0: the order of listing
--   queues          hash    queue number -> queue record (10_codec.lua)
--   jobs            hash    sequence (8 bytes) -> body: what never changes of a job (10_codec.lua)
--   runs            hash    sequence (8 bytes) -> run: what changes; absent until the first delivery (10_codec.lua)
--   q<N>:ready      zset    places, score 0; byte order is the order of delivery
--   q<N>:delayed    zset    places, score available_at
--   q<N>:leased     zset    places, score deadline; +inf under an owner lease
--   q<N>:dead       zset    places, score time of death
--   q<N>:expiring   zset    places of unleased jobs with a time to live, score expires_at
--   due             zset    queue number -> a time no later than the earliest due time of its sets
--   owned           zset    session, owner, sequence (8 bytes each), score 0: owner leases
--   sessions        zset    session (8 bytes) -> when it lapses
--   lapsed          zset    session (8 bytes) -> when it lapsed; kept for a day so that it cannot come back
--   waiting         zset    name key -> until when some core wants to hear of jobs in it
--   dedup           hash    queue number (4 bytes), key -> expiry (8 bytes), sequence (8 bytes)
--   dedup_due       zset    the same fields, score expiry
--   deleting        hash    queue number -> name key, of deleted queues that still hold jobs
--   letters         zset    queue number (4 bytes), place: dead jobs bound for a dead-letter queue, score time of death
--   table_names     hash    name key -> table number
--   table_index     zset    table name keys, score 0: the order of listing
--   tables          hash    table number -> table record (10_codec.lua)
--   t<N>:rows       hash    key -> row record (10_codec.lua)
--   t<N>:keys       zset    keys, score 0: the order of scans
--   t<N>:expiring   zset    keys of rows with a time to live, score expires_at
--   dropping        hash    name key -> table number, of deleted tables that still hold rows
--   events          stream  id = offset of the last event in the entry; fields t (time), n (names), e (events) and, when
--                           events carry any, v (values, one behind another)
--   consumers       hash    consumer -> offset (8 bytes), epoch (8 bytes)
--   namespaces      hash    namespace -> 1 byte: 1 events of jobs are off, 2 they carry payloads, 4 events of rows carry values;
--                           meta's field of that name says how many there are
--   counts          hash    queue number -> events by kind since it was made (24_counts.lua); all -> of everything
--   metrics         stream  snapshots of queues, tables and processes; ids and fields as those of events, without v
--   snapshots       hash    pass: how far this slot's snapshots are; number -> what the last one of a queue or table said
--                           (85_snapshots.lua)
--   metrics_consumers  hash as consumers, of metrics
--
-- A place is rank (8 bytes, big-endian, sign flipped), then position (8 bytes), then, only when the position is not the
-- job's sequence (it went to the tail), the sequence (8 bytes). Numbers in Lua are doubles: ranks stay bytes.
--
-- A table number is a queue number plus 2^31, from the same counter: both stand in `due` and in the names of events.
-- The version of a row is the offset of the event that wrote it.

local VERSION = 3

local MAX_DUE = 1000            -- due items one operation settles
local MAX_STEP = 200            -- jobs one step of a bulk operation touches
local LAPSED_KEPT_MS = 86400000
local WAITING_MS = 15000
local FOREVER = 'inf'

local FIRST_TABLE = 2147483648

-- Reasons, as quintet.v1.Reason numbers them.
local REASON = {
  INVALID = 1, LIMIT = 2, PAYLOAD = 3, QUEUE_NOT_FOUND = 4, QUEUE_EXISTS = 5, JOB_NOT_FOUND = 6, NOT_LEASED = 7,
  STALE = 8, FULL = 9, RANK = 10, PAUSED = 11, LAPSED = 12, TRIMMED = 15, EPOCH = 16, TABLE_NOT_FOUND = 20, TABLE_EXISTS = 21,
  ROW_NOT_FOUND = 22, VERSION = 23, TABLE_FULL = 24, MEMORY = 41, INTERNAL = 60, DAMAGED = 61,
}

-- Event kinds, as quintet.v1.EventKind numbers them.
local EVENT = {
  ENQUEUED = 1, DEQUEUED = 2, ACKNOWLEDGED = 3, RELEASED = 4, LEASE_EXPIRED = 5, OWNER_CLOSED = 6, EXTENDED = 7,
  DELETED = 8, READY = 9, EXPIRED = 10, REDRIVEN = 11, DEAD_LETTERED = 12, QUEUE_CREATED = 20, QUEUE_UPDATED = 21,
  QUEUE_DELETED = 22, QUEUE_PAUSED = 23, QUEUE_RESUMED = 24, ROW_PUT = 30, ROW_DELETED = 31, ROW_EXPIRED = 32,
  TABLE_CREATED = 40, TABLE_UPDATED = 41, TABLE_DELETED = 42,
}

-- Job states, as quintet.v1.JobState numbers them.
local DELAYED, READY, LEASED, DEAD = 1, 2, 3, 4

-- Nothing but the redis table is there while a library loads; each call binds these before anything else.
local call, pack, unpack_struct, sub, format, concat

local function bind()
  call, pack, unpack_struct, sub, format, concat =
    redis.call, struct.pack, struct.unpack, string.sub, string.format, table.concat
end

local PAUSE_IN, PAUSE_OUT = 1, 2
local TAIL = 2

-- A refusal: the operation changed nothing. Strings after the reason are pairs for the caller.
local function refuse(reason, ...)
  return { '!', reason, ... }
end

-- Damage is raised, not returned: it can be met at any depth, and always before the first write.
local function damaged(what)
  error({ damaged = what }, 0)
end
