"""Whether an archive is the log, event by event, and whether what a log tells of jobs and rows can have happened.

Both are questions in SQL over columns as `tests.support.event_record.RECORD` has them. Each answer is one line for each
kind of fault found, with how often, and the first case; none when all is well.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa

from tests.support.event_record import RECORD

_NAMES_EVENT = ("partition", "offset")
_GONE = "gone"
_BACK = ("ready", "delayed", "dead")
_LEGAL_STEPS = [
    *((None, "job_enqueued", state) for state in ("ready", "delayed")),
    ("ready", "job_dequeued", "leased"),
    ("leased", "job_acknowledged", _GONE),
    *(("leased", kind, state) for kind in ("job_released", "job_lease_expired", "job_owner_closed") for state in _BACK),
    ("leased", "job_extended", "leased"),
    *((state, "job_deleted", _GONE) for state in ("ready", "delayed", "leased", "dead")),
    ("delayed", "job_ready", "ready"),
    *((state, "job_expired", _GONE) for state in ("ready", "delayed", "leased")),
    *((state, "job_redriven", "ready") for state in ("delayed", "dead")),
    ("dead", "job_dead_lettered", _GONE),
]
"""State before, event, state after."""

_STEPS_OF_JOBS = """
CREATE OR REPLACE TEMP TABLE job_steps AS
SELECT *, coalesce(state, 'gone') AS after,
  lag(coalesce(state, 'gone')) OVER job AS before,
  lag(attempt) OVER job AS attempt_before,
  lag(rank) OVER job AS rank_before, lag(queue) OVER job AS queue_before,
  lag(namespace) OVER job AS namespace_before, lag(payload_bytes) OVER job AS payload_bytes_before,
  lag(at_ms) OVER job AS at_ms_before, lag(kind) OVER job AS kind_before,
  max(CASE WHEN kind = 'job_dequeued' THEN at_ms END)
    OVER (PARTITION BY job_id ORDER BY "offset" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS leased_at_ms
FROM log WHERE job_id IS NOT NULL
WINDOW job AS (PARTITION BY job_id ORDER BY "offset")
"""

_STEPS_OF_ROWS = """
CREATE OR REPLACE TEMP TABLE row_steps AS
SELECT *, lag(kind) OVER row AS before, lag(expires_at_ms) OVER row AS expires_at_ms_before
FROM log WHERE key IS NOT NULL
WINDOW row AS (PARTITION BY partition, namespace, "table", key ORDER BY "offset")
"""

_STEPS_OF_QUEUES = """
CREATE OR REPLACE TEMP TABLE queue_steps AS
SELECT *, max(CASE kind WHEN 'queue_created' THEN "offset" * 2 + 1 WHEN 'queue_deleted' THEN "offset" * 2 END)
  OVER (PARTITION BY partition, namespace, queue ORDER BY "offset"
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) % 2 = 1 AS is_there
FROM log WHERE queue IS NOT NULL
  AND kind IN ('queue_created', 'queue_deleted', 'queue_updated', 'queue_paused', 'queue_resumed', 'job_enqueued')
"""

_RULES: dict[str, str] = {
    # Of the log itself.
    "an offset is missing or there twice": """
        SELECT * FROM (SELECT partition, "offset", "offset" - coalesce(lag("offset") OVER (
          PARTITION BY partition ORDER BY "offset"), 0) AS step FROM log) WHERE step <> 1""",
    "the clock of a partition falls": """
        SELECT * FROM (SELECT partition, "offset", at_ms, lag(at_ms) OVER (
          PARTITION BY partition ORDER BY "offset") AS before FROM log) WHERE at_ms < before""",
    "a job is in a partition that its id does not name": """
        SELECT job_id, partition FROM log WHERE job_id % $partitions <> partition""",
    # Of jobs.
    "a step that no job may take": """
        SELECT job_id, "offset", before, kind, after FROM job_steps WHERE NOT EXISTS (
          SELECT 1 FROM legal WHERE legal.before IS NOT DISTINCT FROM job_steps.before
          AND legal.kind = job_steps.kind AND legal.after = job_steps.after)""",
    "attempts are counted wrongly": """
        SELECT job_id, "offset", kind, attempt_before, attempt FROM job_steps WHERE NOT CASE kind
          WHEN 'job_enqueued' THEN attempt = 0
          WHEN 'job_dequeued' THEN attempt = attempt_before + 1
          WHEN 'job_released' THEN attempt IN (attempt_before, attempt_before - 1)
          -- Of a release that takes the attempt back, too late for the job's time to live.
          WHEN 'job_expired' THEN attempt IN (attempt_before, attempt_before - (before = 'leased')::INT)
          WHEN 'job_redriven' THEN attempt IN (attempt_before, 0)
          ELSE attempt = attempt_before END""",
    "a job changes its queue, rank or size": """
        SELECT job_id, "offset", kind, namespace, queue, rank, payload_bytes FROM job_steps WHERE before IS NOT NULL
          AND (namespace <> namespace_before OR queue <> queue_before OR rank <> rank_before
               OR payload_bytes <> payload_bytes_before)""",
    "a lease is of another length than from its dequeue to its end": """
        SELECT job_id, "offset", kind, service_ms, at_ms - leased_at_ms AS length FROM job_steps
        WHERE service_ms <>
          CASE WHEN before = 'leased' AND kind <> 'job_extended' THEN at_ms - leased_at_ms ELSE 0 END""",
    "a wait is of another length than from ready to dequeue": """
        SELECT job_id, "offset", wait_ms, at_ms - at_ms_before AS length FROM job_steps
        WHERE CASE WHEN kind <> 'job_dequeued' THEN wait_ms <> 0
                   WHEN kind_before = 'job_ready' THEN wait_ms < at_ms - at_ms_before
                   ELSE wait_ms <> at_ms - at_ms_before END""",
    # Of queues and rows.
    "something happens to a queue that is not there": """
        SELECT namespace, queue, "offset", kind FROM queue_steps
        WHERE coalesce(is_there, false) = (kind = 'queue_created')""",
    "a row goes that is not there": """
        SELECT "table", key, "offset", before, kind FROM row_steps
        WHERE kind <> 'row_put' AND before IS DISTINCT FROM 'row_put'""",
    "a row expires before its time": """
        SELECT "table", key, "offset", at_ms, expires_at_ms_before FROM row_steps
        WHERE kind = 'row_expired' AND (expires_at_ms_before IS NULL OR at_ms < expires_at_ms_before)""",
    "a row is changed after its time": """
        SELECT "table", key, "offset", at_ms, expires_at_ms_before FROM row_steps
        WHERE before = 'row_put' AND at_ms >= expires_at_ms_before AND kind <> 'row_expired'
          AND detail IS DISTINCT FROM 'table deleted'""",
}


def differences(log: pa.Table, archive: pa.Table | duckdb.DuckDBPyRelation) -> list[str]:
    """How the archive is another than the log: events missing, told twice, never written, or altered."""
    with duckdb.connect() as db:
        db.register("log", log)
        db.register("archive", archive if isinstance(archive, pa.Table) else archive.to_arrow_table())
        compared = [name for name in RECORD.names if name not in _NAMES_EVENT]
        # Joined once, and those kept that are not alike: mostly none.
        sides = ", ".join(f'l."{c}" AS "{c}_in_log", a."{c}" AS "{c}_in_archive"' for c in compared)
        unlike = " OR ".join(f'l."{c}" IS DISTINCT FROM a."{c}"' for c in compared)
        db.execute(
            f"""CREATE TEMP TABLE altered AS SELECT partition, "offset", {sides}
                FROM log l JOIN archive a USING (partition, "offset") WHERE {unlike}"""
        )
        questions = {
            "missing in the archive": 'SELECT * FROM log ANTI JOIN archive USING (partition, "offset")',
            "in the archive, never in the log": 'SELECT * FROM archive ANTI JOIN log USING (partition, "offset")',
            "more than once in the archive": """
                SELECT partition, "offset", count(*) AS times FROM archive GROUP BY ALL HAVING times > 1""",
            **{
                f"{c} differs": f"""
                SELECT partition, "offset", "{c}_in_log" AS in_log, "{c}_in_archive" AS in_archive FROM altered
                WHERE in_log IS DISTINCT FROM in_archive"""
                for c in compared
            },
        }
        return answers(db, questions)


def illegal_histories(log: pa.Table, partitions: int) -> list[str]:
    """What in a whole log, from the first event on, cannot have happened."""
    with duckdb.connect() as db:
        db.register("log", log)
        steps = pa.table(dict(zip(("before", "kind", "after"), zip(*_LEGAL_STEPS, strict=True), strict=True)))
        db.register("legal", steps)
        for statement in (_STEPS_OF_JOBS, _STEPS_OF_ROWS, _STEPS_OF_QUEUES):
            db.execute(statement)
        rules = {name: rule.replace("$partitions", str(partitions)) for name, rule in _RULES.items()}
        return answers(db, rules)


def answers(db: duckdb.DuckDBPyConnection, questions: dict[str, str]) -> list[str]:
    """What each question finds: one line for each that finds anything, with how often, and the first case."""
    lines = []
    for what, question in questions.items():
        found = db.execute(f"SELECT count(*) OVER () AS found, * FROM ({question}) ORDER BY ALL LIMIT 1")
        if row := found.fetchone():
            names = [column[0] for column in found.description or ()]
            first = ", ".join(f"{name}={value!r}" for name, value in zip(names[1:], row[1:], strict=True))
            lines.append(f"{what}: {row[0]} times, first {first}")
    return lines
