-- A slot holds one page at a time, a page stands in one slot. It is read only once its write has ended, or it
-- was recovered, and never after it was freed; it is assigned again only when nothing reads or writes it. A
-- quarantined slot is used no more until its segment is opened anew.
WITH
turns AS (
    SELECT stretch, fact, seq, slot, 'assigned' AS what FROM writes_submitted
    UNION ALL SELECT stretch, fact, seq, slot, 'recovered' FROM slots_recovered
    UNION ALL SELECT stretch, fact, seq, slot, 'freed' FROM slots_freed
    UNION ALL SELECT stretch, fact, seq, slot, 'quarantined' FROM slots_quarantined
    UNION ALL SELECT stretch, fact, seq, slot, 'condemned' FROM slots_condemned
),
followed AS (
    SELECT t.*, s.whole, c.ssd_slots_per_segment_max AS per_segment,
        lag(t.what) OVER turn AS former, lag(t.fact) OVER turn AS former_fact
    FROM turns t JOIN stretches s USING (stretch) LEFT JOIN config c USING (stretch)
    WINDOW turn AS (PARTITION BY t.stretch, t.slot ORDER BY t.fact)
),
-- Out of quarantine leads only the opening of its segment.
reused AS (
    SELECT f.* FROM (
        SELECT *, slot // per_segment AS segment FROM followed
        WHERE former IN ('quarantined', 'condemned') AND per_segment IS NOT NULL
    ) f
    ASOF LEFT JOIN segment_opened o ON o.stretch = f.stretch AND o.segment = f.segment AND o.fact < f.fact
    WHERE o.fact IS NULL OR o.fact < f.former_fact
),
pages AS (
    SELECT *, lag(slot) OVER turn AS former_slot, lag(ended_fact) OVER turn AS former_ended_fact
    FROM slot_contents WHERE page IS NOT NULL
    WINDOW turn AS (PARTITION BY stretch, page ORDER BY since_fact)
),
submitted AS (
    SELECT r.stretch, r.read, r.slot, r.page, r.submitted_fact, r.submitted_seq, s.whole,
        c.page AS slot_page, c.findable_fact, c.ended_fact, c.since_fact
    FROM (FROM read_lives WHERE submitted_fact IS NOT NULL) r
    JOIN stretches s USING (stretch)
    ASOF LEFT JOIN slot_contents c
        ON c.stretch = r.stretch AND c.slot = r.slot AND c.since_fact < r.submitted_fact
),
-- What was read or written in it when it is assigned again.
former AS (
    SELECT stretch, slot, since_fact, since_seq,
        lag(write_ended_fact) OVER turn AS write_ended_fact, lag(since_fact) OVER turn AS former_fact
    FROM slot_contents WINDOW turn AS (PARTITION BY stretch, slot ORDER BY since_fact)
),
readers AS (
    SELECT r.stretch, r.slot, r.read, r.ended_fact, c.since_fact, c.since_seq
    FROM (FROM read_lives WHERE submitted_fact IS NOT NULL) r
    ASOF JOIN slot_contents c ON c.stretch = r.stretch AND c.slot = r.slot AND c.since_fact > r.submitted_fact
),
slots AS (
    SELECT stretch, seq, format('slot {} is {}, {}', slot, what,
        if(former IS NULL, 'and holds no page', format('and was {} before', former))) AS why
    FROM followed
    WHERE CASE
        WHEN former IN ('quarantined', 'condemned') THEN false
        WHEN what IN ('assigned', 'recovered', 'condemned') THEN former IN ('assigned', 'recovered')
        ELSE former = 'freed' OR (former IS NULL AND whole)
    END
    UNION ALL
    SELECT stretch, seq, format('slot {} is {}, and was {} before', slot, what, former) FROM reused
),
holding AS (
    SELECT stretch, since_seq AS seq, format('page {} is given slot {}, and stands in slot {} already',
        page, slot, former_slot) AS why
    FROM pages WHERE former_slot IS NOT NULL AND (former_ended_fact IS NULL OR former_ended_fact > since_fact)
    UNION ALL
    SELECT stretch, since_seq, format('slot {} is assigned again, its last write has not ended', slot)
    FROM former WHERE former_fact IS NOT NULL AND (write_ended_fact IS NULL OR write_ended_fact > since_fact)
    UNION ALL
    SELECT stretch, since_seq, format('slot {} is assigned again, read {} is under way in it', slot, read)
    FROM readers WHERE ended_fact IS NULL OR ended_fact > since_fact
),
reading AS (
    SELECT stretch, submitted_seq AS seq, format('read {} of page {} is submitted for slot {}, {}', read, page, slot,
        CASE
            WHEN since_fact IS NULL THEN 'which was never assigned'
            WHEN slot_page <> page THEN format('which holds page {}', slot_page)
            WHEN ended_fact < submitted_fact THEN 'which is free'
            ELSE 'which is not written yet'
        END) AS why
    FROM submitted
    WHERE (since_fact IS NULL AND whole) OR slot_page <> page OR ended_fact < submitted_fact
        OR (since_fact IS NOT NULL AND (findable_fact IS NULL OR findable_fact > submitted_fact))
)
FROM slots UNION ALL FROM holding UNION ALL FROM reading
