-- level_changes: by how much each level that is drawn over time rises or falls, fact by fact.
--
-- A thing that began before its stretch of the log counts neither when it began nor when it ends.
CREATE TEMP TABLE level_changes AS
WITH
operations_begun AS (
    SELECT stretch, operation, 'reserved_hints' AS series FROM hint_admitted
    UNION ALL SELECT stretch, operation, NULL FROM query_granted
),
charged AS (
    SELECT r.stretch, r.seq, r.fact, o.series, r.change_bytes AS delta
    FROM reservation_changes r JOIN operations_begun o USING (stretch, operation)
),
submitted AS (
    SELECT s.stretch, s.seq, s.fact, s.read, b.slot_bytes,
        if(s.foreground, 'in_flight_foreground', 'in_flight_background') AS series
    FROM reads_submitted s ASOF JOIN buffers_allocated b
        ON b.stretch = s.stretch AND b.buffer = s.buffer AND b.fact <= s.fact
),
read_ends AS (
    SELECT stretch, seq, fact, read FROM reads_landed
    UNION ALL SELECT stretch, seq, fact, read FROM reads_failed
),
writes AS (
    SELECT s.stretch, s.seq, s.fact, s.slot, b.slot_bytes
    FROM writes_submitted s ASOF JOIN buffers_allocated b
        ON b.stretch = s.stretch AND b.buffer = s.buffer AND b.fact <= s.fact
),
write_ends AS (
    SELECT e.stretch, e.seq, e.fact, w.slot_bytes
    FROM (
        SELECT stretch, seq, fact, slot FROM slots_written
        UNION ALL SELECT stretch, seq, fact, slot FROM writes_failed
    ) e ASOF JOIN writes w ON w.stretch = e.stretch AND w.slot = e.slot AND w.fact <= e.fact
),
freed AS (
    SELECT f.stretch, f.seq, f.fact, b.slot_bytes
    FROM buffers_freed f ASOF JOIN buffers_allocated b
        ON b.stretch = f.stretch AND b.buffer = f.buffer AND b.fact <= f.fact
),
cohort AS (
    SELECT stretch, seq, fact, buffer, 1 AS sign FROM pages_prepared
    UNION ALL SELECT stretch, seq, fact, buffer, -1 FROM pages_restored
    UNION ALL SELECT stretch, seq, fact, buffer, -1 FROM pages_unused
),
waits AS (
    SELECT stretch, operation, min(fact) AS fact, min(seq) AS seq FROM query_waiting GROUP BY ALL
),
wait_ends AS (
    SELECT stretch, operation, min(fact) AS fact, min(seq) AS seq
    FROM (
        SELECT stretch, operation, fact, seq FROM query_granted
        UNION ALL SELECT stretch, operation, fact, seq FROM query_ended
    ) GROUP BY ALL
)
SELECT stretch, seq, fact, 'reserved' AS series, delta::DOUBLE AS delta FROM charged
UNION ALL SELECT stretch, seq, fact, series, delta FROM charged WHERE series IS NOT NULL
UNION ALL SELECT stretch, seq, fact, series, slot_bytes FROM submitted
UNION ALL
SELECT e.stretch, e.seq, e.fact, s.series, -s.slot_bytes FROM read_ends e JOIN submitted s USING (stretch, read)
UNION ALL SELECT stretch, seq, fact, 'in_flight_background', slot_bytes FROM writes
UNION ALL SELECT stretch, seq, fact, 'in_flight_background', -slot_bytes FROM write_ends
UNION ALL SELECT stretch, seq, fact, 'pool_used', slot_bytes FROM buffers_allocated
UNION ALL SELECT stretch, seq, fact, 'pool_used', -slot_bytes FROM freed
UNION ALL SELECT stretch, seq, fact, 'resident_' || page_class, 1 FROM pages_inserted
UNION ALL SELECT stretch, seq, fact, 'resident_' || page_class, -1 FROM pages_evicted
UNION ALL SELECT stretch, seq, fact, 'resident_reclaimable', -1 FROM pages_promoted
UNION ALL SELECT stretch, seq, fact, 'resident_retained', 1 FROM pages_promoted
UNION ALL
SELECT c.stretch, c.seq, c.fact, 'pending', c.sign * b.footprint_bytes
FROM cohort c ASOF JOIN buffers_allocated b
    ON b.stretch = c.stretch AND b.buffer = c.buffer AND b.fact <= c.fact
UNION ALL SELECT stretch, seq, fact, 'waiting', 1 FROM waits
UNION ALL SELECT w.stretch, e.seq, e.fact, 'waiting', -1 FROM waits w JOIN wait_ends e USING (stretch, operation);
