-- amounts: what happened how much, record by record, for charts that add up over time.
CREATE TEMP TABLE amounts AS
WITH
written AS (
    SELECT w.stretch, w.seq, b.slot_bytes
    FROM slots_written w
    ASOF JOIN writes_submitted s ON s.stretch = w.stretch AND s.slot = w.slot AND s.fact <= w.fact
    ASOF JOIN buffers_allocated b ON b.stretch = s.stretch AND b.buffer = s.buffer AND b.fact <= s.fact
)
SELECT stretch, seq, 'demand' AS chart, 'dram' AS series, sum(dram)::DOUBLE AS amount FROM decision_settled GROUP BY ALL
UNION ALL SELECT stretch, seq, 'demand', 'peer', sum(peer) FROM decision_settled GROUP BY ALL
UNION ALL SELECT stretch, seq, 'demand', 'ssd', sum(ssd) FROM decision_settled GROUP BY ALL
UNION ALL SELECT stretch, seq, 'demand', 'miss', sum(miss) FROM decision_settled GROUP BY ALL
UNION ALL SELECT stretch, seq, 'warm', 'dram', sum(dram) FROM warm_probed GROUP BY ALL
UNION ALL SELECT stretch, seq, 'warm', 'peer', sum(peer) FROM warm_probed GROUP BY ALL
UNION ALL SELECT stretch, seq, 'warm', 'ssd', sum(ssd) FROM warm_probed GROUP BY ALL
UNION ALL SELECT stretch, seq, 'warm', 'miss', sum(miss) FROM warm_probed GROUP BY ALL
UNION ALL
SELECT l.stretch, l.seq, 'traffic', 'read, ' || coalesce(s.origin::VARCHAR, 'demand'), sum(l.read_bytes)
FROM reads_landed l LEFT JOIN reads_submitted s USING (stretch, read) GROUP BY ALL
UNION ALL SELECT stretch, seq, 'traffic', 'written', sum(slot_bytes) FROM written GROUP BY ALL
UNION ALL SELECT stretch, seq, 'restored', 'to GPU', sum(copied_bytes) FROM gpu_synced GROUP BY ALL
UNION ALL
SELECT stretch, seq, 'evictions', page_class || ', ' || reason, count(*) FROM pages_evicted GROUP BY ALL
UNION ALL SELECT stretch, seq, 'hints', 'admitted', count(*) FROM hint_admitted GROUP BY ALL
UNION ALL SELECT stretch, seq, 'hints', 'not needed', count(*) FROM hint_not_needed GROUP BY ALL
UNION ALL SELECT stretch, seq, 'hints', 'skipped: ' || reason, count(*) FROM hint_skipped GROUP BY ALL
UNION ALL SELECT stretch, seq, 'failures', 'read, ' || replace(outcome::VARCHAR, '_', ' '), count(*) FROM reads_failed GROUP BY ALL
UNION ALL SELECT stretch, seq, 'failures', 'write, ' || replace(outcome::VARCHAR, '_', ' '), count(*) FROM writes_failed GROUP BY ALL
UNION ALL
SELECT stretch, seq, 'refusals', 'read dropped, no room', count(*) FROM reads_dropped WHERE no_room GROUP BY ALL
UNION ALL
SELECT stretch, seq, 'refusals', 'write dropped, ' || replace(reason::VARCHAR, '_', ' '), count(*) FROM writes_dropped GROUP BY ALL
UNION ALL
SELECT stretch, seq, 'refusals', 'save dropped, ' || replace(reason::VARCHAR, '_', ' '), sum("count") FROM saves_dropped GROUP BY ALL
UNION ALL SELECT stretch, seq, 'refusals', 'no memory after reclaim', count(*) FROM allocation_failed GROUP BY ALL;
