-- gpu_syncs: one row for each successful sync that a rank reported.
--
-- stretch, fact    its key
-- seq, at_ns       the record, and when it was on the manager's clock
-- lease, rank      whose copies ended
-- operation, instance, request   that the lease answered
-- pages            that it named
-- restored         of these, pages that were prepared and that no sync had named before
-- layers, copied_bytes, elapsed_us   as the rank told
-- late             the lease had ended before, the pages were still held for this copy
CREATE VIEW gpu_syncs AS
WITH
ranges AS (
    SELECT stretch, fact, sum(end_position - first_position)::BIGINT AS pages FROM gpu_synced_ranges GROUP BY ALL
),
restored AS (SELECT stretch, seq, count(*) AS restored FROM pages_restored GROUP BY ALL)
SELECT s.stretch, s.fact, s.seq, r.at_ns, s.lease, s.rank, l.operation, q.instance, q.request,
    coalesce(p.pages, 0) AS pages, coalesce(x.restored, 0) AS restored, s.layers, s.copied_bytes, s.elapsed_us,
    s.late
FROM gpu_synced s
JOIN records r ON r.stretch = s.stretch AND r.seq = s.seq
LEFT JOIN lease_granted l ON l.stretch = s.stretch AND l.lease = s.lease
LEFT JOIN query_opened q ON q.stretch = l.stretch AND q.operation = l.operation
LEFT JOIN ranges p ON p.stretch = s.stretch AND p.fact = s.fact
LEFT JOIN restored x ON x.stretch = s.stretch AND x.seq = s.seq;
