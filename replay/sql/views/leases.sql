-- leases: one row for each lease that was granted in this stretch of the log.
--
-- stretch, lease   its key
-- operation, name   that was answered with it; the name is that of the timeline
-- instance, request, attempt   whose it is
-- granted_seq, granted_at_ns   when
-- boundary_tokens   of the prefix that it covers
-- pages            that it holds
-- charge_bytes, deadline_ns   what it costs, and until when it is promised
-- begun, synced    ranks that began to copy, and that ended it with a successful sync
-- copied_bytes     that those reported
-- ended_seq, ended   when the promise was over, and why
-- released_seq     from here on nothing of it is held
-- held_us          from the grant to there
CREATE VIEW leases AS
WITH
pages AS (
    SELECT stretch, lease, count(*) AS pages
    FROM query_pages WHERE lease IS NOT NULL AND lease_position IS NOT NULL AND had_fact IS NOT NULL GROUP BY ALL
),
begun AS (SELECT stretch, lease, count(*) AS begun FROM restore_begun GROUP BY ALL),
synced AS (
    SELECT stretch, lease, count(*) AS synced, sum(copied_bytes)::BIGINT AS copied_bytes
    FROM gpu_synced GROUP BY ALL
),
ends AS (
    SELECT stretch, lease, min(seq) AS ended_seq, arg_min("end", fact) AS ended FROM lease_ended GROUP BY ALL
),
releases AS (SELECT stretch, lease, min(seq) AS released_seq FROM lease_released GROUP BY ALL)
SELECT l.stretch, l.lease, l.operation, o.name, q.instance, o.request, q.attempt, l.seq AS granted_seq,
    r.at_ns AS granted_at_ns, l.boundary_tokens, coalesce(p.pages, 0) AS pages, l.charge_bytes, l.deadline_ns,
    coalesce(b.begun, 0) AS begun, coalesce(s.synced, 0) AS synced,
    coalesce(s.copied_bytes, 0) AS copied_bytes, e.ended_seq, e.ended, x.released_seq,
    (gone.at_ns - r.at_ns) // 1000 AS held_us
FROM lease_granted l
JOIN records r ON r.stretch = l.stretch AND r.seq = l.seq
LEFT JOIN operations o ON o.stretch = l.stretch AND o.operation = l.operation AND o.kind = 'demand'
LEFT JOIN query_opened q ON q.stretch = l.stretch AND q.operation = l.operation
LEFT JOIN pages p ON p.stretch = l.stretch AND p.lease = l.lease
LEFT JOIN begun b ON b.stretch = l.stretch AND b.lease = l.lease
LEFT JOIN synced s ON s.stretch = l.stretch AND s.lease = l.lease
LEFT JOIN ends e ON e.stretch = l.stretch AND e.lease = l.lease
LEFT JOIN releases x ON x.stretch = l.stretch AND x.lease = l.lease
LEFT JOIN records gone ON gone.stretch = l.stretch AND gone.seq = x.released_seq;
