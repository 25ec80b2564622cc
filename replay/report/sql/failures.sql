-- The last things of each kind that went wrong: failed reads and writes, failed copies, quarantined slots, a
-- store that changed.
--
-- $each    how many of one kind
-- $limit   how many in all
SELECT p.incarnation, f.seq, m.ms, f.what, f.number
FROM (
    SELECT stretch, seq, 'reads failed (' || replace(outcome::VARCHAR, '_', ' ') || ')' AS what, count(*) AS number FROM reads_failed GROUP BY ALL
    UNION ALL
    SELECT stretch, seq, 'writes failed (' || replace(outcome::VARCHAR, '_', ' ') || ')', count(*) FROM writes_failed GROUP BY ALL
    UNION ALL SELECT stretch, seq, 'slots quarantined', count(*) FROM slots_quarantined GROUP BY ALL
    UNION ALL
    SELECT stretch, seq, if(stopped, 'copies to a GPU failed', 'copies to a GPU failed and may still run'), count(*)
    FROM sync_failed GROUP BY ALL
    UNION ALL SELECT stretch, seq, 'no memory after reclaim', count(*) FROM allocation_failed GROUP BY ALL
    UNION ALL
    SELECT stretch, seq, if(writable, 'the store takes writes again', 'the store takes no writes: ' || reason), 1
    FROM store_changed
) f
JOIN spans p USING (stretch) JOIN moments m USING (stretch, seq)
QUALIFY row_number() OVER (PARTITION BY f.what ORDER BY p.stretch DESC, f.seq DESC) <= $each
ORDER BY p.stretch DESC, f.seq DESC, f.what LIMIT $limit;
