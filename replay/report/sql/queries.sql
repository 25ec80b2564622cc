-- asked: one row for each query, from its request's queueing to what its ranks made of the answer.
--
-- *_ms          when, in milliseconds since 1970; null: not in the log
-- started_ms    the request was queued, or else its query opened
-- usable_ms     the last rank's GPU sync, or the answer where there was nothing to restore; null: never
-- wait_end_ms   its budget was granted, or it ended without one
CREATE TEMP TABLE asked AS
WITH
opened AS (
    SELECT q.stretch, q.operation, q.instance, q.request, q.attempt, q.asked_pages, q.charge_bytes, q.seq, q.fact
    FROM query_opened q
),
waits AS (
    SELECT stretch, operation, min(seq) AS seq, arg_min(reserved_bytes, fact) AS reserved_bytes,
        arg_min(limit_bytes, fact) AS limit_bytes, arg_min(by_instance, fact) AS by_instance
    FROM query_waiting GROUP BY ALL
),
grants AS (SELECT stretch, operation, min(seq) AS seq FROM query_granted GROUP BY ALL),
decisions AS (
    SELECT stretch, operation, min(seq) AS seq, arg_min(dram, fact) AS dram, arg_min(peer, fact) AS peer,
        arg_min(ssd, fact) AS ssd, arg_min(miss, fact) AS miss
    FROM decision_settled GROUP BY ALL
),
leases AS (
    SELECT stretch, operation, min(lease) AS lease, arg_min(boundary_tokens, fact) AS boundary_tokens
    FROM lease_granted GROUP BY ALL
),
ends AS (
    SELECT stretch, operation, min(seq) AS seq, arg_min("end", fact)::VARCHAR AS ending
    FROM query_ended GROUP BY ALL
),
begun AS (SELECT stretch, lease, min(seq) AS seq, count(DISTINCT rank) AS ranks FROM restore_begun GROUP BY ALL),
syncs AS (
    SELECT stretch, lease, max(seq) AS seq, sum(copied_bytes) AS copied_bytes, max(elapsed_us) AS slowest_us,
        arg_max(rank, elapsed_us) AS slowest_rank
    FROM gpu_synced GROUP BY ALL
),
sync_failures AS (SELECT stretch, lease, count(*) AS failed FROM sync_failed GROUP BY ALL),
cuts AS (SELECT stretch, operation, min(seq) AS seq FROM query_cut GROUP BY ALL),
own_reads AS (
    SELECT stretch, operation, read, fact, seq, false AS joined FROM reads_queued
    UNION ALL SELECT stretch, operation, read, fact, seq, true FROM reads_joined
),
submissions AS (SELECT stretch, read, min(seq) AS seq FROM reads_submitted GROUP BY ALL),
landings AS (
    SELECT stretch, read, min(seq) AS seq, arg_min(elapsed_us, fact) AS elapsed_us, true AS landed
    FROM reads_landed GROUP BY ALL
    UNION ALL SELECT stretch, read, min(seq), NULL, false FROM reads_failed GROUP BY ALL
),
reads_of AS (
    SELECT o.stretch, o.operation, count(*) AS reads, count(*) FILTER (joined) AS joined_reads,
        count(*) FILTER (l.landed IS FALSE) AS failed_reads,
        max(l.elapsed_us) AS slowest_read_us, max(sm.ms - qm.ms) AS longest_queue_ms
    FROM own_reads o
    LEFT JOIN submissions s USING (stretch, read)
    LEFT JOIN landings l USING (stretch, read)
    JOIN moments qm ON qm.stretch = o.stretch AND qm.seq = o.seq
    LEFT JOIN moments sm ON sm.stretch = s.stretch AND sm.seq = s.seq
    GROUP BY ALL
),
stages AS (
    SELECT s.stretch, s.request, s.attempt, s.stage, s.seq, m.ms
    FROM stage_reported s JOIN moments m USING (stretch, seq)
),
queued AS (
    SELECT o.stretch, o.operation, max(s.ms) AS ms
    FROM opened o JOIN stages s USING (stretch, request, attempt)
    WHERE s.stage = 'queued' AND s.seq <= o.seq GROUP BY ALL
),
used AS (
    SELECT o.stretch, o.operation, min(s.ms) AS ms
    FROM opened o JOIN stages s USING (stretch, request, attempt)
    WHERE s.stage = 'first_use' AND s.seq >= o.seq GROUP BY ALL
),
hints AS (
    SELECT h.stretch, h.instance, h.request, h.attempt, h.seq, h.fact, h.operation AS hint, 'admitted' AS fate
    FROM hint_admitted h
    UNION ALL SELECT stretch, instance, request, attempt, seq, fact, NULL, 'not needed' FROM hint_not_needed
    UNION ALL SELECT stretch, instance, request, attempt, seq, fact, NULL, 'skipped (' || reason || ')' FROM hint_skipped
),
hint_ends AS (SELECT stretch, operation AS hint, min(seq) AS seq FROM hint_ended GROUP BY ALL)
SELECT o.stretch, p.incarnation, o.operation, o.instance, o.request, o.attempt, o.seq, o.asked_pages, o.charge_bytes,
    qm.ms AS queued_ms, om.ms AS opened_ms,
    w.seq AS wait_seq, wm.ms AS wait_ms, w.reserved_bytes, w.limit_bytes, w.by_instance,
    g.seq AS grant_seq, gm.ms AS grant_ms, coalesce(gm.ms, em.ms) AS wait_end_ms,
    d.seq AS answer_seq, dm.ms AS answer_ms, d.dram, d.peer, d.ssd, d.miss,
    l.lease, l.boundary_tokens, c.seq AS cut_seq,
    b.seq AS restore_seq, bm.ms AS restore_ms, b.ranks, y.seq AS sync_seq, ym.ms AS sync_ms, y.copied_bytes,
    y.slowest_us AS slowest_copy_us, y.slowest_rank, coalesce(f.failed, 0) AS failed_copies,
    um.ms AS used_ms, e.seq AS end_seq, em.ms AS end_ms, e.ending,
    coalesce(r.reads, 0) AS reads, coalesce(r.joined_reads, 0) AS joined_reads,
    coalesce(r.failed_reads, 0) AS failed_reads, r.slowest_read_us, r.longest_queue_ms,
    h.fate AS hint_fate, h.seq AS hint_seq, hm.ms AS hint_ms, hem.ms AS hint_end_ms,
    coalesce(qm.ms, om.ms) AS started_ms,
    if(l.lease IS NULL, dm.ms, ym.ms) AS usable_ms
FROM opened o
JOIN spans p USING (stretch)
JOIN moments om ON om.stretch = o.stretch AND om.seq = o.seq
LEFT JOIN queued qm ON qm.stretch = o.stretch AND qm.operation = o.operation
LEFT JOIN waits w ON w.stretch = o.stretch AND w.operation = o.operation
LEFT JOIN moments wm ON wm.stretch = w.stretch AND wm.seq = w.seq
LEFT JOIN grants g ON g.stretch = o.stretch AND g.operation = o.operation
LEFT JOIN moments gm ON gm.stretch = g.stretch AND gm.seq = g.seq
LEFT JOIN decisions d ON d.stretch = o.stretch AND d.operation = o.operation
LEFT JOIN moments dm ON dm.stretch = d.stretch AND dm.seq = d.seq
LEFT JOIN leases l ON l.stretch = o.stretch AND l.operation = o.operation
LEFT JOIN cuts c ON c.stretch = o.stretch AND c.operation = o.operation
LEFT JOIN begun b ON b.stretch = l.stretch AND b.lease = l.lease
LEFT JOIN moments bm ON bm.stretch = b.stretch AND bm.seq = b.seq
LEFT JOIN syncs y ON y.stretch = l.stretch AND y.lease = l.lease
LEFT JOIN moments ym ON ym.stretch = y.stretch AND ym.seq = y.seq
LEFT JOIN sync_failures f ON f.stretch = l.stretch AND f.lease = l.lease
LEFT JOIN used um ON um.stretch = o.stretch AND um.operation = o.operation
LEFT JOIN ends e ON e.stretch = o.stretch AND e.operation = o.operation
LEFT JOIN moments em ON em.stretch = e.stretch AND em.seq = e.seq
LEFT JOIN reads_of r ON r.stretch = o.stretch AND r.operation = o.operation
ASOF LEFT JOIN hints h ON h.stretch = o.stretch AND h.instance = o.instance AND h.request = o.request
    AND h.attempt = o.attempt AND h.fact <= o.fact
LEFT JOIN moments hm ON hm.stretch = h.stretch AND hm.seq = h.seq
LEFT JOIN hint_ends he ON he.stretch = h.stretch AND he.hint = h.hint
LEFT JOIN moments hem ON hem.stretch = he.stretch AND hem.seq = he.seq;
