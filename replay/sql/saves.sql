-- A saved page is begun in new memory of its instance's space and sealed once, when no copy into it is under way.
-- What is dropped before that, at its deadline at the latest, is given up in the record in which its last copy or
-- seal ends.
WITH
begun AS (
    SELECT b.stretch, b.seq, b.fact, b.buffer, b.instance, b.group_id, b.deadline_ns, g.generation, g.allocated_seq,
        g.begun_fact, g.sealed_fact, g.sealed_seq, g.dropped_fact, g.dropped_seq, g.given_up_fact, g.given_up_seq
    FROM save_begun b
    JOIN buffer_uses u ON u.stretch = b.stretch AND u.fact = b.fact AND u.buffer = b.buffer AND u.what = 'begun'
    JOIN generation_lives g ON g.stretch = u.stretch AND g.generation = u.generation
),
works AS (
    SELECT stretch, generation, fact, seq, what IN ('started', 'sealing') AS begins,
        what IN ('sealing', 'seal ended') AS is_seal
    FROM (
        SELECT stretch, generation, fact, seq, what FROM slice_copies
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
sealing AS (
    SELECT stretch, sealing_seq AS seq, format('generation {} is being sealed while a copy into it is under way', generation)
        AS why
    FROM lives WHERE last_copy_fact > sealing_fact OR sealing_seq < last_filled_seq
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
FROM beginning UNION ALL FROM belonging UNION ALL FROM sealing UNION ALL FROM dropping UNION ALL FROM deadlines
