-- Every demand that is answered settles once, in the record that answers it:
-- dram + peer + ssd + miss = asked, each page under the tier it came from. What a hint's lookup saw adds up
-- in the same way, as its own kind.
--
-- Recounted from the pages that the demand went on with: DRAM hits from its grant on, reads from their
-- landing on, and neither once a cut has let go of them. All the rest was a miss; and all of it was, where
-- the answer is none (missed, bypassed, expired), whatever was held by then. There are no peers yet.
WITH
answers AS (
    SELECT stretch, seq, operation, 'ready' AS answer FROM lease_granted
    UNION ALL
    SELECT stretch, seq, operation, "end"::VARCHAR FROM query_ended
    WHERE "end" IN ('bypassed', 'missed', 'expired')
),
recounted AS (
    SELECT s.stretch, s.fact,
        count(*) FILTER (q.tier = 'dram') AS dram_found, count(*) FILTER (q.tier = 'ssd') AS ssd_found
    FROM decision_settled s
    JOIN lease_granted l USING (stretch, seq, operation)
    JOIN query_pages q ON q.stretch = s.stretch AND q.operation = s.operation
    WHERE q.held AND q.had_fact < s.fact AND (q.let_go_fact IS NULL OR q.let_go_fact > s.fact)
    GROUP BY ALL
),
demands AS (
    SELECT
        s.*, o.known, o.opened_fact, o.asked_pages,
        s.dram::HUGEINT + s.peer + s.ssd + s.miss AS sum_pages,
        coalesce(dram_found, 0) AS dram_found, coalesce(ssd_found, 0) AS ssd_found,
        format('demand {} ({})', o.name, coalesce(o.request, 'opened elsewhere')) AS name,
        row_number() OVER (PARTITION BY s.stretch, s.operation ORDER BY s.fact) AS nth
    FROM decision_settled s
    JOIN operations o ON o.stretch = s.stretch AND o.operation = s.operation AND o.kind = 'demand'
    LEFT JOIN recounted r ON r.stretch = s.stretch AND r.fact = s.fact
),
settling AS (
    SELECT stretch, seq, format('{} settles {} pages, it was opened for {}', name, asked, asked_pages) AS why
    FROM demands WHERE asked <> asked_pages
    UNION ALL
    SELECT stretch, seq, format('{} is settled, and was never opened', name)
    FROM demands WHERE known AND opened_fact IS NULL
    UNION ALL
    SELECT stretch, seq, format('{} is settled again', name) FROM demands WHERE nth > 1
    UNION ALL
    SELECT stretch, seq, format('{} is settled by a record that does not answer it', name)
    FROM demands ANTI JOIN answers USING (stretch, seq, operation)
    UNION ALL
    SELECT a.stretch, a.seq, format('demand {} is answered ({}) and not settled', o.name, a.answer)
    FROM answers a ANTI JOIN decision_settled s USING (stretch, seq, operation)
    JOIN operations o ON o.stretch = a.stretch AND o.operation = a.operation AND o.kind = 'demand'
),
counting AS (
    SELECT stretch, seq, format('{}: dram {} + peer {} + ssd {} + miss {} are {} pages, asked were {}',
        name, dram, peer, ssd, miss, sum_pages, asked) AS why
    FROM demands WHERE sum_pages <> asked OR least(dram, peer, ssd, miss) < 0
    UNION ALL
    SELECT stretch, seq, format('{} settles dram {}, peer {}, ssd {}; it has dram {}, peer 0, ssd {}',
        name, dram, peer, ssd, dram_found, ssd_found)
    FROM demands WHERE known AND (dram, peer, ssd) IS DISTINCT FROM (dram_found, 0, ssd_found)
    UNION ALL
    SELECT q.stretch, q.seq, format('demand {} takes generation {} for a DRAM hit, no lookup finds it',
        o.name, q.generation)
    FROM query_pages q
    JOIN operations o USING (stretch, operation)
    JOIN generation_lives g ON g.stretch = q.stretch AND g.generation = q.generation
    WHERE q.tier = 'dram' AND (g.inserted_fact IS NULL OR g.inserted_fact > q.fact OR g.evicted_fact < q.fact)
),
hints AS (
    SELECT stretch, seq, instance, request, attempt, asked_pages, operation FROM hint_admitted
    UNION ALL SELECT stretch, seq, instance, request, attempt, asked_pages, NULL FROM hint_skipped
    UNION ALL SELECT stretch, seq, instance, request, attempt, asked_pages, NULL FROM hint_not_needed
),
-- Of the pages that a hint names it needs all; of those of a trailing part the last.
needed AS (
    SELECT p.stretch, p.operation, p.fact, p.seq, p.part, h.page_index, h.page
    FROM hint_admitted_parts p JOIN hint_admitted_pages h USING (stretch, operation, part)
    QUALIFY p.trailing_pages = 0
        OR h.page_index >= count(*) OVER (PARTITION BY p.stretch, p.operation, p.part) - p.trailing_pages
),
needs AS (
    SELECT n.*, q.read
    FROM needed n LEFT JOIN query_pages q USING (stretch, operation, part, page_index)
),
seen AS (
    SELECT stretch, operation, count(*) AS needed, count(read) AS reads FROM needs GROUP BY ALL
),
probes AS (
    SELECT h.*, p.fact, p.asked, p.dram, p.peer, p.ssd, p.miss,
        coalesce(s.needed, 0) AS needed, coalesce(s.reads, 0) AS reads
    FROM hints h
    LEFT JOIN warm_probed p USING (stretch, seq, instance, request, attempt)
    LEFT JOIN seen s ON s.stretch = h.stretch AND s.operation = h.operation
),
probing AS (
    SELECT stretch, seq, format(
        'hint for {}: dram {} + peer {} + ssd {} + miss {} are {} pages, asked were {}',
        request, dram, peer, ssd, miss, dram::HUGEINT + peer + ssd + miss, asked) AS why
    FROM warm_probed WHERE dram::HUGEINT + peer + ssd + miss <> asked OR least(dram, peer, ssd, miss) < 0
    UNION ALL
    SELECT stretch, seq, format('the lookup of the hint for {} is not told', request)
    FROM probes WHERE fact IS NULL
    UNION ALL
    SELECT stretch, seq, format('the lookup for a hint for {} is told, and no hint', request)
    FROM warm_probed ANTI JOIN hints USING (stretch, seq, instance, request, attempt)
    UNION ALL
    SELECT stretch, seq, format('the hint for {} asks for {} pages, its lookup for {}',
        request, asked_pages, asked)
    FROM probes WHERE asked <> asked_pages
    UNION ALL
    SELECT stretch, seq, format(
        'the lookup of the hint for {} saw dram {}, peer {}, ssd {}; it needs {} pages, {} of them are read',
        request, dram, peer, ssd, needed, reads)
    FROM probes
    WHERE operation IS NOT NULL AND (dram, peer, ssd) IS DISTINCT FROM (needed - reads, 0, reads)
    UNION ALL
    SELECT n.stretch, n.seq, format('hint {} needs page {}, which is neither in DRAM nor read for it',
        o.name, n.page)
    FROM needs n
    JOIN operations o USING (stretch, operation)
    ANTI JOIN generation_lives g
        ON g.stretch = n.stretch AND g.page = n.page
        AND g.inserted_fact < n.fact AND (g.evicted_fact IS NULL OR g.evicted_fact > n.fact)
    JOIN stretches s ON s.stretch = n.stretch
    WHERE n.read IS NULL AND s.whole
)
FROM settling UNION ALL FROM counting UNION ALL FROM probing;
