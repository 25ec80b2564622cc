-- A saved page is begun in new memory, filled once by each rank that holds a slice of it, sealed when all slices
-- are there, and only then found. What is dropped before that, at its deadline at the latest, is given up in the
-- record in which its last copy or seal ends.
WITH
begun AS (
    SELECT b.stretch, b.seq, b.fact, b.buffer, b.instance, b.group_id, b.deadline_ns, g.generation, g.allocated_seq,
        g.begun_fact, g.sealed_fact, g.sealed_seq, g.dropped_fact, g.dropped_seq, g.given_up_fact, g.given_up_seq
    FROM save_begun b
    JOIN buffer_uses u ON u.stretch = b.stretch AND u.fact = b.fact AND u.buffer = b.buffer AND u.what = 'begun'
    JOIN generation_lives g ON g.stretch = u.stretch AND g.generation = u.generation
),
copies AS (
    SELECT stretch, fact, seq, session, rank, buffer, 'started' AS what FROM copies_started
    UNION ALL SELECT stretch, fact, seq, session, rank, buffer, 'filled' FROM slices_filled
    UNION ALL SELECT stretch, fact, seq, session, rank, buffer, 'lost' FROM copies_lost
),
ranks AS (
    SELECT c.*, u.generation, lag(c.what) OVER turn AS former, lag(c.session) OVER turn AS former_session
    FROM copies c JOIN buffer_uses u ON u.stretch = c.stretch AND u.fact = c.fact AND u.buffer = c.buffer
    WHERE u.generation IS NOT NULL AND u.what IN ('copied into', 'filled', 'not filled')
    WINDOW turn AS (PARTITION BY u.stretch, u.generation, c.rank ORDER BY c.fact)
),
works AS (
    SELECT stretch, generation, fact, seq, what IN ('started', 'sealing') AS begins,
        what IN ('sealing', 'seal ended') AS is_seal
    FROM (
        SELECT stretch, generation, fact, seq, what FROM ranks
        UNION ALL
        SELECT stretch, generation, fact, seq, what FROM buffer_uses
        WHERE what IN ('sealing', 'seal ended') AND generation IS NOT NULL
    )
),
sums AS (
    SELECT stretch, generation,
        count(*) FILTER (begins) AS begins, count(*) FILTER (NOT begins) AS ends, max(seq) AS last_seq,
        min(fact) FILTER (begins AND is_seal) AS sealing_fact, min(seq) FILTER (begins AND is_seal) AS sealing_seq,
        count(*) FILTER (begins AND is_seal) AS seals, min(seq) FILTER (NOT begins AND is_seal) AS seal_ended_seq,
        max(fact) FILTER (begins AND NOT is_seal) AS last_copy_fact,
        max(seq) FILTER (NOT begins AND NOT is_seal) AS last_filled_seq
    FROM works GROUP BY ALL
),
lives AS (
    SELECT b.*, s.* EXCLUDE (stretch, generation),
        greatest(b.dropped_seq, coalesce(s.last_seq, 0)) AS idle_seq
    FROM begun b LEFT JOIN sums s USING (stretch, generation)
),
needed AS (
    SELECT DISTINCT stretch, instance, group_id, slice, min(fact) AS fact FROM rank_registered_slices GROUP BY ALL
),
filled AS MATERIALIZED (
    SELECT r.stretch, r.generation, r.session, b.group_id, min(r.fact) AS fact
    FROM ranks r JOIN begun b USING (stretch, generation)
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
wrong AS (
    SELECT stretch, generation, begun_fact, dropped_fact, sealed_fact, given_up_fact FROM generation_lives
    WHERE saving_fact < coalesce(begun_fact, 9223372036854775807)
        OR last_saving_fact > least(dropped_fact, sealed_fact) OR last_given_up_fact > given_up_fact
),
beginning AS (
    SELECT stretch, seq, format('a save is begun in generation {}, which is not new', generation) AS why
    FROM begun WHERE allocated_seq <> seq OR fact > begun_fact
    UNION ALL
    SELECT u.stretch, u.seq, format('generation {} is {}, {}', u.generation, u.what,
        if(u.fact < w.begun_fact OR w.begun_fact IS NULL, 'and no save was begun in it', 'its save is over'))
    FROM buffer_uses u JOIN wrong w USING (stretch, generation)
    WHERE CASE
        WHEN u.what IN ('joined', 'copied into', 'sealing', 'sealed', 'dropped') THEN
            w.begun_fact IS NULL OR u.fact < w.begun_fact OR u.fact > least(w.dropped_fact, w.sealed_fact)
        WHEN u.what = 'given up' THEN
            w.begun_fact IS NULL OR u.fact < w.begun_fact OR u.fact > w.given_up_fact
        WHEN u.what IN ('filled', 'not filled', 'seal ended') THEN
            w.begun_fact IS NULL OR u.fact < w.begun_fact
    END
),
belonging AS (
    SELECT b.stretch, b.seq, format('generation {} is begun for group {} of instance {}, its page is of space {}',
        b.generation, b.group_id, b.instance, k.space) AS why
    FROM begun b JOIN page_keys k USING (stretch, generation) JOIN stretches s USING (stretch)
    LEFT JOIN instance_sealed_groups g
        ON g.stretch = b.stretch AND g.instance = b.instance AND g.group_id = b.group_id
    WHERE k.space <> g.space OR (s.whole AND g.space IS NULL)
    UNION ALL
    SELECT j.stretch, j.seq, format('session {} joins the save of generation {}, it is no rank of instance {}',
        j.session, b.generation, b.instance)
    FROM save_joined j
    JOIN buffer_uses u ON u.stretch = j.stretch AND u.fact = j.fact AND u.buffer = j.buffer AND u.what = 'joined'
    JOIN begun b ON b.stretch = u.stretch AND b.generation = u.generation
    JOIN stretches s ON s.stretch = j.stretch
    LEFT JOIN rank_registered r ON r.stretch = j.stretch AND r.session = j.session AND r.fact < j.fact
    WHERE s.whole AND (r.instance IS NULL OR r.instance <> b.instance)
),
writers AS MATERIALIZED (
    SELECT r.stretch, r.session, r.rank, b.instance, b.group_id, min(r.seq) AS seq,
        arg_min(r.generation, r.fact) AS generation
    FROM ranks r JOIN begun b USING (stretch, generation)
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
    FROM ranks
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
    SELECT stretch, sealing_seq, format('generation {} is being sealed while a copy into it is under way', generation)
    FROM lives WHERE last_copy_fact > sealing_fact OR sealing_seq < last_filled_seq
    UNION ALL
    SELECT l.stretch, l.last_filled_seq, format('all slices of generation {} are there, and it is not being sealed',
        l.generation)
    FROM lives l JOIN stretches s USING (stretch) ANTI JOIN missing m USING (stretch, generation)
    WHERE s.whole AND l.sealing_seq IS DISTINCT FROM l.last_filled_seq
        AND (l.dropped_seq IS NULL OR l.dropped_seq > l.last_filled_seq)
    UNION ALL
    SELECT stretch, sealing_seq, format('generation {} is being sealed {} times', generation, seals)
    FROM lives WHERE seals > 1
    UNION ALL
    SELECT stretch, coalesce(sealed_seq, seal_ended_seq), format(
        'the seal of generation {} ends at seq {}, it is sealed at seq {}',
        generation, coalesce(seal_ended_seq::VARCHAR, 'none'), coalesce(sealed_seq::VARCHAR, 'none'))
    FROM lives
    WHERE (sealed_seq IS NOT NULL OR (seal_ended_seq IS NOT NULL AND dropped_fact IS NULL))
        AND sealed_seq IS DISTINCT FROM seal_ended_seq
),
dropping AS (
    SELECT stretch, given_up_seq AS seq, format('generation {} is given up, and its save was not dropped', generation) AS why
    FROM lives WHERE given_up_fact IS NOT NULL AND (dropped_fact IS NULL OR dropped_fact > given_up_fact)
    UNION ALL
    SELECT stretch, given_up_seq, format('generation {} is given up, a copy or seal of it is under way', generation)
    FROM lives WHERE given_up_fact IS NOT NULL AND (begins > ends OR idle_seq > given_up_seq)
    UNION ALL
    SELECT stretch, idle_seq, format('nothing of the dropped generation {} is under way, and it is not given up',
        generation)
    FROM lives
    WHERE dropped_fact IS NOT NULL AND coalesce(begins, 0) = coalesce(ends, 0)
        AND (given_up_seq IS NULL OR given_up_seq > idle_seq)
    UNION ALL
    SELECT d.stretch, d.seq, format('generation {} is dropped as expired, its deadline is {} ns later',
        b.generation, b.deadline_ns - r.at_ns)
    FROM saves_dropped_buffers d JOIN begun b ON b.stretch = d.stretch AND b.dropped_fact = d.fact AND b.buffer = d.buffer
    JOIN records r ON r.stretch = d.stretch AND r.seq = d.seq
    WHERE d.reason = 'expired' AND b.deadline_ns > r.at_ns
    UNION ALL
    SELECT d.stretch, d.seq, format('{} dropped pages are counted, {} are named', any_value(d.count), count(*))
    FROM saves_dropped d JOIN saves_dropped_buffers b USING (stretch, fact)
    GROUP BY d.stretch, d.seq, d.fact HAVING any_value(d.count) <> count(*)
    UNION ALL
    SELECT stretch, seq, format('{} dropped pages are counted', count) FROM saves_dropped WHERE count < 1
    UNION ALL
    SELECT d.stretch, d.seq, format('pages of saves are dropped as {} by {}', d.reason, r.cause)
    FROM saves_dropped d JOIN records r USING (stretch, seq)
    WHERE r.cause::VARCHAR NOT IN (SELECT unnest(CASE d.reason
        WHEN 'resident' THEN ['BeginSave', 'CompleteReads']
        WHEN 'expired' THEN ['Tick']
        WHEN 'aborted' THEN ['AbortSave']
        WHEN 'disconnected' THEN ['CloseSession', 'RegisterRank', 'ReleaseProcess']
        WHEN 'source_gone' THEN ['CompleteCopies']
        WHEN 'shutdown' THEN ['BeginShutdown', 'CloseIncarnation']
        ELSE ['BeginSave']
    END))
),
-- Those that were still half filled at their deadline, or are at the end.
late AS (
    SELECT l.* FROM (
        SELECT stretch, seq, generation, deadline_ns,
            least(coalesce(dropped_seq, sealing_seq), coalesce(sealing_seq, dropped_seq)) AS over_seq
        FROM lives
    ) l
    LEFT JOIN records r ON r.stretch = l.stretch AND r.seq = l.over_seq
    WHERE r.at_ns IS NULL OR r.at_ns >= l.deadline_ns
),
deadlines AS (
    SELECT l.stretch, r.seq, format('generation {} is half filled, its deadline was {} ns ago',
        l.generation, r.at_ns - l.deadline_ns) AS why
    FROM late l
    ASOF JOIN (FROM records WHERE cause = 'Tick') r ON r.stretch = l.stretch AND r.at_ns >= l.deadline_ns
    WHERE r.seq > l.seq AND (l.over_seq IS NULL OR l.over_seq > r.seq)
    UNION ALL
    SELECT b.stretch, b.seq, format('a save is begun until {} ns, its lifetime ends at {} ns',
        b.deadline_ns, r.at_ns + c.save_lifetime_ns)
    FROM save_begun b JOIN records r USING (stretch, seq) JOIN config c ON c.stretch = b.stretch
    WHERE b.deadline_ns <> r.at_ns + c.save_lifetime_ns
)
FROM beginning UNION ALL FROM belonging UNION ALL FROM filling UNION ALL FROM sealing UNION ALL FROM dropping UNION ALL FROM deadlines
