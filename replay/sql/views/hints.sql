-- hints: one row for each hint, whatever became of it.
--
-- stretch, seq, session, ticket   its key
-- at_ns           when the hint came, on the manager's clock
-- answer          admitted, skipped or not_needed
-- reason          why it was skipped: oversized, operations, foreground or bytes
-- operation       of an admitted one
-- instance, request, attempt   whose it is
-- asked_pages, charge_bytes    what it names, and what preparing that may cost
-- reserved, limit_reached      of a skipped one: what was in the way, bytes or operations
-- dram, peer, ssd, miss        what its lookup saw, in pages
-- reads, joined   pages read for it, and of these the ones that others had started
-- prepared, restored, unused   pages of its own reads that joined the cohort, and what became of them
-- prepared_bytes, restored_bytes, unused_bytes   the same in bytes
-- ended_seq, ended   when its interest was over, and why
CREATE VIEW hints AS
WITH
told AS (
    SELECT stretch, seq, fact, session, operation & 4294967295 AS ticket, 'admitted' AS answer,
        NULL AS reason, operation, instance, request, attempt, asked_pages, charge_bytes,
        NULL AS reserved, NULL AS limit_reached
    FROM hint_admitted
    UNION ALL
    SELECT stretch, seq, fact, session, ticket, 'skipped', reason, NULL, instance, request, attempt,
        asked_pages, charge_bytes, reserved, "limit"
    FROM hint_skipped
    UNION ALL
    SELECT stretch, seq, fact, session, ticket, 'not_needed', NULL, NULL, instance, request, attempt,
        asked_pages, NULL, NULL, NULL
    FROM hint_not_needed
),
used AS (
    SELECT q.stretch, q.operation, count(*) AS reads,
        count(*) FILTER (r.queued_fact IS DISTINCT FROM q.fact) AS joined,
        count(c.generation) AS prepared,
        count(c.restored_seq) AS restored, count(c.unused_seq) AS unused,
        sum(c.footprint_bytes) AS prepared_bytes,
        sum(c.footprint_bytes) FILTER (c.restored_seq IS NOT NULL) AS restored_bytes,
        sum(c.footprint_bytes) FILTER (c.unused_seq IS NOT NULL) AS unused_bytes
    FROM query_pages q
    LEFT JOIN read_lives r ON r.stretch = q.stretch AND r.read = q.read
    LEFT JOIN cohorts c ON c.stretch = q.stretch AND c.generation = q.generation AND r.queued_fact = q.fact
    WHERE q.kind = 'warm' GROUP BY ALL
),
ends AS (
    SELECT stretch, operation, min(seq) AS ended_seq, arg_min("end", fact) AS ended
    FROM hint_ended GROUP BY ALL
)
SELECT t.stretch, t.seq, t.session, t.ticket, r.at_ns, t.answer, t.reason, t.operation, t.instance, t.request,
    t.attempt, t.asked_pages, t.charge_bytes, t.reserved, t.limit_reached, p.dram, p.peer, p.ssd, p.miss,
    coalesce(u.reads, 0) AS reads, coalesce(u.joined, 0) AS joined, coalesce(u.prepared, 0) AS prepared,
    coalesce(u.restored, 0) AS restored, coalesce(u.unused, 0) AS unused,
    coalesce(u.prepared_bytes, 0) AS prepared_bytes, coalesce(u.restored_bytes, 0) AS restored_bytes,
    coalesce(u.unused_bytes, 0) AS unused_bytes, e.ended_seq, e.ended
FROM told t
JOIN records r ON r.stretch = t.stretch AND r.seq = t.seq
LEFT JOIN warm_probed p ON p.stretch = t.stretch AND p.seq = t.seq AND p.instance = t.instance
    AND p.request = t.request AND p.attempt = t.attempt
LEFT JOIN used u ON u.stretch = t.stretch AND u.operation = t.operation
LEFT JOIN ends e ON e.stretch = t.stretch AND e.operation = t.operation;
