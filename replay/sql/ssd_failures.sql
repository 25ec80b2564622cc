-- A read that brings another page frees its slot, one that does not verify quarantines it at once, one that is
-- short or fails counts against it, and the slot is quarantined at the number that the configuration allows; a
-- write that fails frees it. No slot is counted, freed or quarantined for anything else, but its segment's end.
WITH
failed AS (
    SELECT f.stretch, f.seq, f.fact, f.read, f.outcome::VARCHAR AS outcome, r.slot, c.since_fact, c.ended_fact,
        c.ended, c.ended_seq
    FROM reads_failed f
    JOIN read_lives r USING (stretch, read)
    ASOF LEFT JOIN slot_contents c
        ON c.stretch = f.stretch AND c.slot = r.slot AND c.since_fact < r.submitted_fact
    WHERE r.slot IS NOT NULL
),
counted AS (
    SELECT f.stretch, f.seq, f.fact, f.slot, c.since_fact, c.ended_fact, c.ended, c.ended_seq, s.whole,
        count(*) OVER (PARTITION BY f.stretch, f.slot, c.since_fact ORDER BY f.fact) AS nth
    FROM slot_failure_counted f JOIN stretches s USING (stretch)
    ASOF LEFT JOIN slot_contents c
        ON c.stretch = f.stretch AND c.slot = f.slot AND c.since_fact < f.fact
),
due AS (
    -- While the slot still held the page that was read.
    SELECT stretch, seq, slot, read, outcome,
        CASE outcome WHEN 'corrupt' THEN 'quarantined' WHEN 'other_page' THEN 'freed' ELSE 'counted' END AS what
    FROM failed WHERE since_fact IS NOT NULL AND (ended_fact IS NULL OR ended_fact > fact)
),
done AS (
    SELECT stretch, seq, slot, 'quarantined' AS what FROM slots_quarantined
    UNION ALL SELECT stretch, seq, slot, 'freed' FROM slots_freed WHERE "end" = 'other_page'
    UNION ALL SELECT stretch, seq, slot, 'counted' FROM slot_failure_counted
),
limits AS (SELECT stretch, ssd_read_failures_max FROM config),
reasons AS (
    SELECT stretch, seq, slot, what FROM due
    UNION ALL
    SELECT c.stretch, c.seq, c.slot, 'quarantined' FROM counted c JOIN limits l USING (stretch)
    WHERE c.nth >= l.ssd_read_failures_max
    UNION ALL
    SELECT f.stretch, f.seq, f.slot,
        CASE f.outcome WHEN 'corrupt' THEN 'quarantined' WHEN 'other_page' THEN 'freed' ELSE 'counted' END
    FROM failed f WHERE f.since_fact IS NULL
)
SELECT d.stretch, d.seq, format('read {} of slot {} ends as {}, and the slot is not {}',
    d.read, d.slot, d.outcome, d.what) AS why
FROM due d ANTI JOIN done USING (stretch, seq, slot, what)
UNION ALL
SELECT c.stretch, c.seq, format('slot {} fails for the {}. time, and is not quarantined', c.slot, c.nth)
FROM counted c JOIN limits l USING (stretch)
ANTI JOIN slots_quarantined q ON q.stretch = c.stretch AND q.seq = c.seq AND q.slot = c.slot
WHERE c.nth >= l.ssd_read_failures_max AND c.since_fact IS NOT NULL
UNION ALL
SELECT d.stretch, d.seq, format('slot {} is {}, and no read of it fails so', d.slot, d.what)
FROM done d JOIN stretches s USING (stretch) ANTI JOIN reasons r USING (stretch, seq, slot, what)
WHERE s.whole
UNION ALL
SELECT f.stretch, f.seq, format('slot {} is freed because its write failed, it did not', f.slot)
FROM slots_freed f ANTI JOIN writes_failed w USING (stretch, seq, slot)
WHERE f."end" = 'write_failed'
UNION ALL
SELECT w.stretch, w.seq, format('the write of slot {} fails, and the slot is not freed', w.slot)
FROM writes_failed w ANTI JOIN slots_freed f USING (stretch, seq, slot)
UNION ALL
SELECT f.stretch, f.seq, format('slot {} is freed to reclaim segment {}, which is not drained',
    f.slot, f.slot // c.ssd_slots_per_segment_max)
FROM slots_freed f JOIN config c USING (stretch)
ASOF LEFT JOIN (
    SELECT stretch, segment, fact, 'draining' AS what FROM segment_draining
    UNION ALL SELECT stretch, segment, fact, 'opened' FROM segment_opened
) d ON d.stretch = f.stretch AND d.segment = f.slot // c.ssd_slots_per_segment_max AND d.fact < f.fact
WHERE f."end" = 'reclaimed' AND d.what = 'opened'
