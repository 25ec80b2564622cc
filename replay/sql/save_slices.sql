-- Each rank that holds a slice of a saved page fills it once, by one copy at a time of its own session. The page is
-- sealed in the record in which the last slice is filled, and not before.
WITH
begun AS (
    SELECT b.stretch, b.instance, b.group_id, g.generation, g.dropped_seq, g.sealing_fact, g.sealing_seq
    FROM save_begun b
    JOIN generation_lives g ON g.stretch = b.stretch AND g.begun_fact = b.fact AND g.buffer = b.buffer
),
lives AS (
    SELECT b.*, f.last_filled_seq
    FROM begun b
    LEFT JOIN (
        SELECT stretch, generation, max(seq) AS last_filled_seq FROM slice_copies WHERE what <> 'started' GROUP BY ALL
    ) f USING (stretch, generation)
),
needed AS (
    SELECT DISTINCT stretch, instance, group_id, slice, min(fact) AS fact FROM rank_registered_slices GROUP BY ALL
),
filled AS MATERIALIZED (
    SELECT r.stretch, r.generation, r.session, b.group_id, min(r.fact) AS fact
    FROM slice_copies r JOIN begun b USING (stretch, generation)
    WHERE r.what = 'filled'
    GROUP BY ALL
),
given AS (
    SELECT f.stretch, f.generation, s.slice, min(f.fact) AS fact
    FROM filled f JOIN rank_registered_slices s USING (stretch, session, group_id)
    GROUP BY ALL
),
missing AS (
    SELECT l.stretch, l.generation, count(*) AS slices, min(n.slice) AS slice
    FROM lives l JOIN needed n ON n.stretch = l.stretch AND n.instance = l.instance AND n.group_id = l.group_id
    ANTI JOIN given v ON v.stretch = l.stretch AND v.generation = l.generation AND v.slice = n.slice
        AND v.fact < coalesce(l.sealing_fact, 9223372036854775807)
    GROUP BY ALL
),
writers AS MATERIALIZED (
    SELECT r.stretch, r.session, r.rank, b.instance, b.group_id, min(r.seq) AS seq,
        arg_min(r.generation, r.fact) AS generation
    FROM slice_copies r JOIN begun b USING (stretch, generation)
    WHERE r.what = 'started'
    GROUP BY ALL
),
filling AS (
    SELECT stretch, seq, format('the slice of rank {} of generation {} is {}, {}', rank, generation,
        if(what = 'started', 'copied', what),
        CASE
            WHEN what = 'started' THEN format('it was {} before', former)
            WHEN former IS DISTINCT FROM 'started' THEN 'no copy of it was under way'
            ELSE format('by session {} and not {}', session, former_session)
        END) AS why
    FROM slice_copies
    WHERE CASE what
        WHEN 'started' THEN former IN ('started', 'filled')
        ELSE former IS DISTINCT FROM 'started' OR former_session <> session
    END
    UNION ALL
    SELECT w.stretch, w.seq, format('rank {} is to fill generation {}, its session {} registered no such slice',
        w.rank, w.generation, w.session)
    FROM writers w JOIN stretches s USING (stretch)
    ANTI JOIN rank_registered_slices g ON g.stretch = w.stretch AND g.session = w.session
        AND g.instance = w.instance AND g.rank = w.rank AND g.group_id = w.group_id AND g.seq < w.seq
    WHERE s.whole
),
sealing AS (
    SELECT l.stretch, l.sealing_seq AS seq, format('generation {} is being sealed, {} of its slices are missing: {}',
        l.generation, m.slices, m.slice) AS why
    FROM lives l JOIN missing m USING (stretch, generation) JOIN stretches s USING (stretch)
    WHERE s.whole AND l.sealing_seq IS NOT NULL
    UNION ALL
    SELECT l.stretch, l.last_filled_seq, format('all slices of generation {} are there, and it is not being sealed',
        l.generation)
    FROM lives l JOIN stretches s USING (stretch) ANTI JOIN missing m USING (stretch, generation)
    WHERE s.whole AND l.sealing_seq IS DISTINCT FROM l.last_filled_seq
        AND (l.dropped_seq IS NULL OR l.dropped_seq > l.last_filled_seq)
)
FROM filling UNION ALL FROM sealing
