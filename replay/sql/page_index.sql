-- Of each key at most one generation is found by lookups. It gets there once, in the record in which it was
-- sealed or its read landed, and leaves once. It is retained if it was saved, if a demand waited for its
-- landing, or once a demand took it or a save found it; else reclaimable. A warm lookup changes nothing of it.
WITH
landings AS (
    SELECT stretch, generation, min(landed_fact) AS fact, min(landed_seq) AS seq,
        arg_min(origin, landed_fact) AS origin, arg_min(read, landed_fact) AS read
    FROM read_lives WHERE generation IS NOT NULL AND landed_fact IS NOT NULL GROUP BY ALL
),
wanted AS (
    SELECT l.stretch, l.generation, bool_or(q.kind = 'demand') AS by_demand, bool_and(q.known) AS known
    FROM landings l JOIN query_pages q USING (stretch, read)
    WHERE q.fact < l.fact AND (q.let_go_fact IS NULL OR q.let_go_fact > l.fact)
    GROUP BY ALL
),
inserted AS (
    SELECT i.stretch, i.seq, i.fact, i.buffer, i.page_class::VARCHAR AS page_class, i.origin::VARCHAR AS origin,
        g.generation, g.page, g.promoted_fact, g.evicted_fact, g.evicted_seq,
        lag(g.generation) OVER turn AS former, lag(g.evicted_fact) OVER turn AS former_evicted_fact
    FROM pages_inserted i
    JOIN buffer_uses u
        ON u.stretch = i.stretch AND u.fact = i.fact AND u.buffer = i.buffer AND u.what = 'inserted'
    JOIN generation_lives g ON g.stretch = u.stretch AND g.generation = u.generation
    WINDOW turn AS (PARTITION BY g.stretch, g.page ORDER BY i.fact)
),
expected AS (
    SELECT i.*, g.sealed_seq = i.seq AS by_save, l.seq = i.seq AS by_read,
        CASE WHEN g.sealed_seq = i.seq THEN 'demand' ELSE l.origin END AS right_origin,
        CASE
            WHEN g.sealed_seq = i.seq OR w.by_demand IS TRUE THEN 'retained'
            WHEN w.known IS FALSE OR NOT s.whole AND w.known IS NULL THEN i.page_class
            ELSE 'reclaimable'
        END AS right_class
    FROM inserted i
    JOIN stretches s USING (stretch)
    JOIN generation_lives g USING (stretch, generation)
    LEFT JOIN landings l USING (stretch, generation)
    LEFT JOIN wanted w USING (stretch, generation)
),
-- Reclaimable until it is promoted.
classes AS (
    SELECT stretch, generation, fact AS inserted_fact, page_class,
        if(page_class = 'retained', fact, promoted_fact) AS retained_fact
    FROM inserted
),
named AS (
    SELECT u.stretch, u.seq, u.fact, u.buffer, u.what, u.generation, c.inserted_fact, c.retained_fact,
        g.evicted_fact, g.allocated_fact
    FROM buffer_uses u
    JOIN generation_lives g USING (stretch, generation)
    LEFT JOIN classes c USING (stretch, generation)
    WHERE u.what IN ('promoted', 'touched', 'evicted', 'granted')
),
entering AS (
    SELECT stretch, seq, format('generation {} of page {} enters the index, generation {} is there still',
        generation, page, former) AS why
    FROM inserted WHERE former IS NOT NULL AND (former_evicted_fact IS NULL OR former_evicted_fact > fact)
    UNION ALL
    SELECT stretch, seq, format('generation {} enters the index, neither sealed nor landed here', generation)
    FROM expected WHERE by_save IS NOT TRUE AND by_read IS NOT TRUE
    UNION ALL
    SELECT stretch, seq, format('generation {} enters the index as {}, it should be {}',
        generation, page_class, right_class)
    FROM expected WHERE page_class <> right_class
    UNION ALL
    SELECT stretch, seq, format('generation {} enters the index with origin {}, it should be {}',
        generation, origin, right_origin)
    FROM expected WHERE origin <> right_origin
    UNION ALL
    SELECT stretch, sealed_seq, format('generation {} is sealed, and does not enter the index', generation)
    FROM generation_lives WHERE sealed_seq IS NOT NULL AND inserted_seq IS DISTINCT FROM sealed_seq
    UNION ALL
    SELECT l.stretch, l.seq, format(
        'generation {} lands, no other of page {} is in the index, and it does not enter', l.generation, l.page)
    FROM (
        SELECT l.*, g.page
        FROM landings l JOIN stretches s USING (stretch) JOIN generation_lives g USING (stretch, generation)
        WHERE s.whole AND g.inserted_seq IS DISTINCT FROM l.seq
    ) l
    ASOF LEFT JOIN inserted o ON o.stretch = l.stretch AND o.page = l.page AND o.fact < l.fact
    WHERE o.generation IS NULL OR o.evicted_fact < l.fact
),
leaving AS (
    SELECT stretch, seq, format('generation {} is {}, no lookup finds it', generation, what) AS why
    FROM named
    WHERE inserted_fact IS NULL OR inserted_fact > fact OR evicted_fact < fact
    UNION ALL
    SELECT n.stretch, n.seq, format('generation {} leaves the index as {}, it is {}', n.generation,
        e.page_class, if(n.retained_fact < n.fact, 'retained', 'reclaimable'))
    FROM named n JOIN pages_evicted e ON e.stretch = n.stretch AND e.fact = n.fact AND e.buffer = n.buffer
    WHERE n.what = 'evicted' AND n.inserted_fact < n.fact
        AND e.page_class::VARCHAR <> if(n.retained_fact < n.fact, 'retained', 'reclaimable')
),
reasons AS (
    SELECT stretch, seq, generation FROM named WHERE what IN ('granted', 'touched')
),
promoting AS (
    SELECT stretch, seq, format('generation {} is promoted, and is retained already', generation) AS why
    FROM named WHERE what = 'promoted' AND retained_fact < fact
    UNION ALL
    SELECT stretch, seq, format('generation {} is promoted, no demand takes it and no save finds it', generation)
    FROM named ANTI JOIN reasons USING (stretch, seq, generation) WHERE what = 'promoted'
    UNION ALL
    SELECT n.stretch, n.seq, format('generation {} is {} and stays reclaimable', n.generation, n.what)
    FROM named n ANTI JOIN named p ON p.stretch = n.stretch AND p.generation = n.generation
        AND p.what = 'promoted' AND p.seq = n.seq
    WHERE n.what IN ('granted', 'touched') AND n.inserted_fact < n.fact
        AND (n.retained_fact IS NULL OR n.retained_fact > n.fact)
    UNION ALL
    SELECT n.stretch, n.seq, format('generation {} is {} by a hint', n.generation, n.what)
    FROM named n JOIN records r USING (stretch, seq)
    WHERE n.what = 'touched' AND r.cause = 'WarmPrefix'
)
FROM entering UNION ALL FROM leaving UNION ALL FROM promoting
