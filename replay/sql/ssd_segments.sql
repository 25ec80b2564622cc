-- The page file is cut into segments, no more than its cap has room for, quarantined slots included. A segment
-- is opened for one slot size, drained, and returned when nothing reads or writes it any more; slots are
-- assigned only in one that is open, of their page's size, and as many as fit in it.
WITH
limits AS (
    SELECT stretch, ssd_bytes // ssd_segment_bytes AS segments, ssd_segment_bytes, ssd_slots_per_segment_max
    FROM config
),
turns AS (
    SELECT stretch, fact, seq, segment, 'opened' AS what, slot_bytes FROM segment_opened
    UNION ALL SELECT stretch, fact, seq, segment, 'draining', NULL FROM segment_draining
    UNION ALL SELECT stretch, fact, seq, segment, 'returned', NULL FROM segment_returned
),
followed AS (
    SELECT t.*, s.whole, lag(what) OVER turn AS former,
        min(fact) FILTER (what = 'draining') OVER (turn ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING) AS draining_fact,
        min(fact) FILTER (what = 'returned') OVER (turn ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING) AS returned_fact
    FROM turns t JOIN stretches s USING (stretch)
    WINDOW turn AS (PARTITION BY stretch, segment ORDER BY fact)
),
placed AS (
    SELECT c.*, l.ssd_segment_bytes, l.ssd_slots_per_segment_max, g.slot_bytes,
        c.slot // l.ssd_slots_per_segment_max AS segment, c.slot % l.ssd_slots_per_segment_max AS place
    FROM slot_contents c JOIN limits l USING (stretch) LEFT JOIN generation_lives g USING (stretch, generation)
),
opened AS (
    SELECT p.*, o.slot_bytes AS segment_slot_bytes, o.draining_fact, o.returned_fact, o.fact AS opened_fact
    FROM placed p
    ASOF LEFT JOIN (FROM followed WHERE what = 'opened') o
        ON o.stretch = p.stretch AND o.segment = p.segment AND o.fact < p.since_fact
),
segments AS (
    SELECT stretch, seq, format('segment {} is {}, {}', segment, what,
        if(former IS NULL, 'and was not opened', format('and was {} before', former))) AS why
    FROM followed
    WHERE CASE what
        WHEN 'opened' THEN former IN ('opened', 'draining')
        WHEN 'draining' THEN former IN ('draining', 'returned') OR (former IS NULL AND whole)
        ELSE former IN ('returned', 'opened') OR (former IS NULL AND whole)
    END
    UNION ALL
    SELECT f.stretch, f.seq, format('segment {} is opened, the cap has room for {}', f.segment, l.segments)
    FROM followed f JOIN limits l USING (stretch)
    WHERE what = 'opened' AND f.segment NOT BETWEEN 0 AND l.segments - 1
    UNION ALL
    SELECT f.stretch, f.seq, format('segment {} is opened for slots of {} bytes', f.segment, f.slot_bytes)
    FROM followed f JOIN limits l USING (stretch)
    WHERE what = 'opened' AND (f.slot_bytes % 4096 <> 0 OR f.slot_bytes NOT BETWEEN 8192 AND l.ssd_segment_bytes)
),
slots AS (
    SELECT o.stretch, o.since_seq AS seq, format('slot {} is {} in segment {}, which is {}',
        o.slot, o.began, o.segment, if(o.opened_fact IS NULL, 'not open', 'drained')) AS why
    FROM opened o JOIN stretches s USING (stretch)
    WHERE (o.opened_fact IS NULL AND s.whole) OR o.draining_fact < o.since_fact OR o.returned_fact < o.since_fact
    UNION ALL
    SELECT stretch, since_seq, format('slot {} is {}, segment {} has {} slots of {} bytes', slot, began, segment,
        ssd_segment_bytes // segment_slot_bytes, segment_slot_bytes)
    FROM opened
    WHERE segment_slot_bytes > 0
        AND place >= least(ssd_segment_bytes // segment_slot_bytes, ssd_slots_per_segment_max)
    UNION ALL
    SELECT stretch, since_seq, format('slot {} of {} bytes is assigned to a page of {} bytes',
        slot, segment_slot_bytes, slot_bytes)
    FROM opened WHERE slot_bytes <> segment_slot_bytes
),
uses AS (
    SELECT p.stretch, p.segment, p.slot, 'holds a page' AS what, p.since_fact, p.ended_fact FROM placed p
    UNION ALL
    SELECT p.stretch, p.segment, p.slot, 'is being written', p.since_fact, p.write_ended_fact FROM placed p
    WHERE p.began = 'assigned'
    UNION ALL
    SELECT r.stretch, r.slot // l.ssd_slots_per_segment_max, r.slot, 'is being read', r.submitted_fact, r.ended_fact
    FROM read_lives r JOIN limits l USING (stretch) WHERE r.submitted_fact IS NOT NULL
),
returns AS (
    SELECT u.stretch, f.seq, format('segment {} is returned, slot {} {} still', u.segment, u.slot, u.what) AS why
    FROM uses u
    ASOF JOIN (FROM followed WHERE what = 'returned') f
        ON f.stretch = u.stretch AND f.segment = u.segment AND f.fact > u.since_fact
    WHERE u.ended_fact IS NULL OR u.ended_fact > f.fact
),
naming AS (
    SELECT r.stretch, r.seq, format('slot {} is {} as one of segment {}', r.slot, r.what, r.segment) AS why
    FROM (
        SELECT stretch, seq, slot, segment, 'recovered' AS what FROM slots_recovered
        UNION ALL SELECT stretch, seq, slot, segment, 'condemned' FROM slots_condemned
    ) r
    JOIN limits l USING (stretch) WHERE r.slot // l.ssd_slots_per_segment_max <> r.segment
    UNION ALL
    SELECT r.stretch, r.seq, format('slot {} of {} bytes is recovered with a page of {}', r.slot, o.slot_bytes,
        r.footprint_blocks * 4096)
    FROM slots_recovered r
    ASOF JOIN segment_opened o ON o.stretch = r.stretch AND o.segment = r.segment AND o.fact < r.fact
    WHERE (r.footprint_blocks + 1) * 4096 <> o.slot_bytes
),
-- A segment that is drained is emptied at once; what is being written in it then, when its write ends.
drained AS (
    SELECT p.*, f.seq, greatest(f.seq, p.write_ended_seq) AS due_seq
    FROM placed p
    ASOF JOIN (FROM followed WHERE what = 'draining') f
        ON f.stretch = p.stretch AND f.segment = p.segment AND f.fact > p.since_fact
    WHERE (p.ended_fact IS NULL OR p.ended_fact > f.fact) AND p.write_ended_fact IS NOT NULL
),
emptying AS (
    SELECT stretch, due_seq AS seq, format('segment {} is drained, slot {} holds a page still', segment, slot) AS why
    FROM drained WHERE ended_seq IS DISTINCT FROM due_seq
)
FROM segments UNION ALL FROM slots UNION ALL FROM returns UNION ALL FROM emptying UNION ALL FROM naming
