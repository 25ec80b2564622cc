-- A read is queued once, then dropped, or submitted and ended by one completion; others join it only until then.
-- Reads are numbered without a gap, and of one page only one is under way, while no lookup finds it in DRAM.
-- It is read into memory taken for that page, whole with its trailer; it is for a demand where one wants it.
WITH
lives AS (
    SELECT r.*, s.whole, g.page AS buffer_page, g.slot_bytes, g.begun_fact
    FROM read_lives r JOIN stretches s USING (stretch)
    LEFT JOIN generation_lives g USING (stretch, generation)
),
numbered AS (
    SELECT q.stretch, q.fact, q.seq, q.read,
        coalesce(lag(q.read) OVER (PARTITION BY q.stretch ORDER BY q.fact, q.read), if(s.whole, 0, NULL)) AS former
    FROM reads_queued q JOIN stretches s USING (stretch)
),
turns AS (
    SELECT *, lag(read) OVER turn AS former, lag(over_fact) OVER turn AS former_over_fact
    FROM read_lives WHERE queued_fact IS NOT NULL
    WINDOW turn AS (PARTITION BY stretch, page ORDER BY queued_fact)
),
wants AS (
    SELECT r.stretch, r.read,
        bool_or(q.kind = 'demand') FILTER (q.let_go_fact IS NULL OR q.let_go_fact > r.submitted_fact)
            AS for_demand,
        bool_or(q.let_go_fact IS NULL OR q.let_go_fact > r.dropped_fact) AS wanted,
        bool_and(q.known) AS known
    FROM read_lives r JOIN query_pages q USING (stretch, read)
    WHERE q.fact < coalesce(r.submitted_fact, r.dropped_fact)
    GROUP BY ALL
),
indexed AS (
    SELECT stretch, page, generation, inserted_fact, evicted_fact FROM generation_lives
    WHERE inserted_fact IS NOT NULL
),
numbering AS (
    SELECT stretch, seq, format('read {} is queued after read {}', read, former) AS why
    FROM numbered WHERE read <> former + 1
),
ordering AS (
    SELECT stretch, coalesce(submitted_seq, dropped_seq, ended_seq) AS seq,
        format('read {} was never queued', read) AS why
    FROM lives WHERE whole AND queued_fact IS NULL
    UNION ALL
    SELECT stretch, submitted_seq, format('read {} is submitted before it is queued', read)
    FROM lives WHERE submitted_fact < queued_fact
    UNION ALL
    SELECT stretch, ended_seq, format('read {} ends ({}), and was not submitted', read, outcome)
    FROM lives WHERE ended_fact < submitted_fact OR (ended_fact > queued_fact AND submitted_fact IS NULL)
    UNION ALL
    SELECT stretch, greatest(dropped_seq, coalesce(submitted_seq, ended_seq)),
        format('read {} is dropped, and submitted', read)
    FROM lives WHERE dropped_fact IS NOT NULL AND coalesce(submitted_fact, ended_fact) IS NOT NULL
    UNION ALL
    SELECT f.stretch, f.seq, format('read {} is {} again', f.read, f.what)
    FROM (
        SELECT stretch, read, fact, seq, 'queued' AS what FROM reads_queued
        UNION ALL SELECT stretch, read, fact, seq, 'submitted' FROM reads_submitted
        UNION ALL SELECT stretch, read, fact, seq, 'dropped' FROM reads_dropped
        UNION ALL SELECT stretch, read, fact, seq, 'ended' FROM reads_landed
        UNION ALL SELECT stretch, read, fact, seq, 'ended' FROM reads_failed
    ) f
    JOIN lives l USING (stretch, read)
    WHERE l.facts > l.kinds
    QUALIFY row_number() OVER (PARTITION BY f.stretch, f.read, f.what ORDER BY f.fact) > 1
),
queueing AS (
    SELECT q.stretch, q.seq, format('read {} is queued as {} by {}.{}, a {}', q.read, q.origin, q.operation >> 32,
        q.operation & 4294967295, o.kind) AS why
    FROM reads_queued q JOIN operations o USING (stretch, operation)
    WHERE o.opened_fact IS NOT NULL AND q.origin::VARCHAR <> o.kind
),
joining AS (
    SELECT j.stretch, j.seq, format('{}.{} joins read {}, {}', j.operation >> 32, j.operation & 4294967295,
        j.read, if(r.over_fact < j.fact, 'which is over', 'which was not queued')) AS why
    FROM reads_joined j JOIN stretches s USING (stretch) LEFT JOIN read_lives r USING (stretch, read)
    WHERE r.over_fact < j.fact OR r.queued_fact > j.fact OR (s.whole AND r.queued_fact IS NULL)
),
sharing AS (
    SELECT stretch, queued_seq AS seq, format('page {} is read by read {}, and by read {} already',
        page, read, former) AS why
    FROM turns WHERE former IS NOT NULL AND (former_over_fact IS NULL OR former_over_fact > queued_fact)
    UNION ALL
    SELECT r.stretch, r.queued_seq, format('read {} is queued for page {}, which is in DRAM as generation {}',
        r.read, r.page, i.generation)
    FROM (FROM read_lives WHERE queued_fact IS NOT NULL) r
    ASOF JOIN indexed i ON i.stretch = r.stretch AND i.page = r.page AND i.inserted_fact < r.queued_fact
    WHERE i.evicted_fact IS NULL OR i.evicted_fact > r.queued_fact
),
submitting AS (
    SELECT stretch, submitted_seq AS seq, format('read {} of page {} is submitted with buffer {}, of page {}',
        read, page, buffer, buffer_page) AS why
    FROM lives WHERE page <> buffer_page
    UNION ALL
    SELECT stretch, submitted_seq, format('read {} is submitted with buffer {}, which a save fills', read, buffer)
    FROM lives WHERE begun_fact < submitted_fact
    UNION ALL
    SELECT stretch, submitted_seq, format('reads {} and {} are submitted with generation {}',
        former, read, generation)
    FROM (
        SELECT *, lag(read) OVER (PARTITION BY stretch, generation ORDER BY submitted_fact, read) AS former
        FROM lives WHERE generation IS NOT NULL
    ) WHERE former IS NOT NULL
    UNION ALL
    SELECT l.stretch, l.submitted_seq, format('read {} is submitted {}, {}', l.read,
        if(l.foreground, 'for a demand', 'for hints only'),
        if(w.for_demand IS TRUE, 'a demand wants it', 'no demand wants it'))
    FROM lives l LEFT JOIN wants w USING (stretch, read)
    WHERE (l.whole OR (l.queued_fact IS NOT NULL AND w.known)) AND l.submitted_fact IS NOT NULL
        AND l.foreground <> (w.for_demand IS TRUE)
),
ending AS (
    SELECT stretch, ended_seq AS seq, format('read {} brings {} bytes, the page''s image has {}',
        read, read_bytes, slot_bytes) AS why
    FROM lives WHERE read_bytes <> slot_bytes
    UNION ALL
    SELECT l.stretch, l.dropped_seq, format('read {} is dropped as unwanted, and is wanted', l.read)
    FROM lives l JOIN wants w USING (stretch, read)
    WHERE NOT l.no_room AND w.wanted AND (l.whole OR w.known)
    UNION ALL
    SELECT l.stretch, l.dropped_seq, format('read {} is dropped for lack of room, no allocation fails', l.read)
    FROM lives l ANTI JOIN allocation_failed a ON a.stretch = l.stretch AND a.seq = l.dropped_seq
        AND a.fact < l.dropped_fact
    WHERE l.no_room
)
FROM numbering UNION ALL FROM ordering UNION ALL FROM queueing UNION ALL FROM joining UNION ALL FROM sharing UNION ALL FROM submitting
UNION ALL FROM ending
