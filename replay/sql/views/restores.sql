-- restores: one row for each copy of a lease's pages that a rank began.
--
-- stretch, lease, rank   its key
-- session          of the rank
-- operation, request   that the lease answered
-- begun_seq, begun_at_ns   when
-- ended            synced, failed (its copies have stopped), unknown (nobody knows) or lost; null: it has not
-- ended_seq        when its outcome was told
-- copy_us          that the rank's device took
-- took_us          from the beginning to the outcome, on the manager's clock
-- copied_bytes, pages   of a successful one
-- late             the lease had ended before, the pages were still held
-- let_go_seq       from here on its copies hold nothing
-- share            how its part ended: synced, released, lost or stranded
CREATE VIEW restores AS
WITH
outcomes AS (
    SELECT stretch, lease, rank, fact, seq, 'synced' AS ended, copied_bytes, elapsed_us, late FROM gpu_synced
    UNION ALL
    SELECT stretch, lease, rank, fact, seq, if(stopped, 'failed', 'unknown'), NULL, NULL, NULL FROM sync_failed
),
firsts AS (
    SELECT stretch, lease, rank, min(fact) AS fact, min(seq) AS ended_seq, arg_min(ended, fact) AS ended,
        arg_min(copied_bytes, fact) AS copied_bytes, arg_min(elapsed_us, fact) AS copy_us,
        arg_min(late, fact) AS late
    FROM outcomes GROUP BY ALL
),
ranges AS (
    SELECT stretch, fact, sum(end_position - first_position)::BIGINT AS pages FROM gpu_synced_ranges GROUP BY ALL
),
shares AS (
    SELECT stretch, lease, rank, max(seq) AS let_go_seq, arg_max(share, fact) AS share
    FROM share_ended GROUP BY ALL
)
SELECT b.stretch, b.lease, b.rank, b.session, l.operation, o.request, b.seq AS begun_seq,
    r.at_ns AS begun_at_ns, coalesce(f.ended, CASE WHEN s.share = 'lost' THEN 'lost' END) AS ended, f.ended_seq,
    f.copy_us, (done.at_ns - r.at_ns) // 1000 AS took_us, f.copied_bytes, p.pages, f.late,
    s.let_go_seq, s.share
FROM restore_begun b
JOIN records r ON r.stretch = b.stretch AND r.seq = b.seq
LEFT JOIN lease_granted l ON l.stretch = b.stretch AND l.lease = b.lease
LEFT JOIN operations o ON o.stretch = l.stretch AND o.operation = l.operation AND o.kind = 'demand'
LEFT JOIN firsts f ON f.stretch = b.stretch AND f.lease = b.lease AND f.rank = b.rank
LEFT JOIN ranges p ON p.stretch = f.stretch AND p.fact = f.fact
LEFT JOIN records done ON done.stretch = f.stretch AND done.seq = f.ended_seq
LEFT JOIN shares s ON s.stretch = b.stretch AND s.lease = b.lease AND s.rank = b.rank;
