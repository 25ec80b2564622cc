-- Every demand that is answered settles once, in the record that answers it: dram + peer + ssd + miss = asked,
-- each page under the tier it came from. What a hint's lookup saw adds up in the same way, as its own kind.
--
-- Recounted from the pages that the demand went on with: DRAM hits from its grant on, reads from their landing
-- on, and neither once a cut has let go of them. All the rest was a miss; and all of it was, where the answer is
-- none (missed, bypassed, expired), whatever was held by then.
WITH
answers AS (
    SELECT stretch, seq, fact, operation, 'ready' AS answer FROM leases_granted
    UNION ALL
    SELECT stretch, seq, fact, operation, outcome::VARCHAR FROM queries_ended
    WHERE outcome IN ('bypassed', 'missed', 'expired')
),
settled AS (
    SELECT *, dram::HUGEINT + peer + ssd + miss AS told_pages,
        row_number() OVER (PARTITION BY stretch, operation ORDER BY fact) AS nth
    FROM decisions_settled
),
recounted AS (
    SELECT s.stretch, s.fact,
        count(*) FILTER (q.tier = 'dram') AS dram, count(*) FILTER (q.tier = 'ssd') AS ssd
    FROM settled s
    JOIN leases_granted l USING (stretch, seq, operation)
    JOIN query_pages q ON q.stretch = s.stretch AND q.operation = s.operation
    WHERE q.held AND q.had_fact < s.fact AND (q.let_go_fact IS NULL OR q.let_go_fact > s.fact)
    GROUP BY ALL
),
demands AS (
    SELECT s.*, o.known, o.opened_fact, o.asked_pages, o.request,
        coalesce(r.dram, 0) AS dram_found, coalesce(r.ssd, 0) AS ssd_found
    FROM settled s
    LEFT JOIN operations o ON o.stretch = s.stretch AND o.operation = s.operation AND o.kind = 'demand'
    LEFT JOIN recounted r ON r.stretch = s.stretch AND r.fact = s.fact
),
hints AS (
    SELECT stretch, seq, instance, request, attempt, asked_pages, operation FROM hints_admitted
    UNION ALL SELECT stretch, seq, instance, request, attempt, asked_pages, NULL FROM hints_skipped
    UNION ALL SELECT stretch, seq, instance, request, attempt, asked_pages, NULL FROM hints_not_needed
),
-- The pages that a hint needs of those that it names: in a trailing part only the last.
needed AS (
    SELECT p.stretch, p.operation, p.fact, p.seq, p.part, h.page_index, h.page
    FROM hint_parts p JOIN hint_pages h USING (stretch, operation, part)
    QUALIFY p.trailing_pages = 0
        OR h.page_index >= count(*) OVER (PARTITION BY p.stretch, p.operation, p.part) - p.trailing_pages
),
seen AS (
    SELECT n.stretch, n.operation, count(*) AS pages, count(q.read) AS reads
    FROM needed n LEFT JOIN query_pages q
        ON q.stretch = n.stretch AND q.operation = n.operation
        AND q.part = n.part AND q.page_index = n.page_index
    GROUP BY ALL
),
probes AS (
    SELECT h.*, p.fact, p.asked, p.dram, p.peer, p.ssd, p.miss,
        coalesce(n.pages, 0) AS needed, coalesce(n.reads, 0) AS reads
    FROM hints h
    LEFT JOIN warm_probes p USING (stretch, seq, instance, request, attempt)
    LEFT JOIN seen n ON n.stretch = h.stretch AND n.operation = h.operation
),
violations AS (
    SELECT stretch, seq, format(
        'demand {} ({}): dram {} + peer {} + ssd {} + miss {} are {} pages, asked were {}',
        operation, request, dram, peer, ssd, miss, told_pages, asked) AS why
    FROM demands WHERE told_pages <> asked OR least(dram, peer, ssd, miss) < 0
    UNION ALL
    SELECT stretch, seq, format('demand {} ({}) settles {} pages, it was opened for {}', operation, request, asked, asked_pages)
    FROM demands WHERE asked <> asked_pages
    UNION ALL
    SELECT stretch, seq, format('demand {} was never opened', operation) FROM demands WHERE known AND opened_fact IS NULL
    UNION ALL
    SELECT stretch, seq, format(
        'demand {} ({}) settles dram {}, peer {}, ssd {}; it has dram {}, peer 0, ssd {}',
        operation, request, dram, peer, ssd, dram_found, ssd_found)
    FROM demands WHERE known AND (dram, peer, ssd) IS DISTINCT FROM (dram_found, 0, ssd_found)
    UNION ALL
    SELECT stretch, seq, format('demand {} ({}) is settled again', operation, request) FROM demands WHERE nth > 1
    UNION ALL
    SELECT s.stretch, s.seq, format('demand {} ({}) is settled by a record that does not answer it', s.operation, s.request)
    FROM demands s ANTI JOIN answers a USING (stretch, seq, operation)
    UNION ALL
    SELECT a.stretch, a.seq, format('demand {} is answered ({}) and not settled', a.operation, a.answer)
    FROM answers a ANTI JOIN settled s USING (stretch, seq, operation)
    UNION ALL
    SELECT stretch, seq, format(
        'hint for {}: dram {} + peer {} + ssd {} + miss {} are {} pages, asked were {}',
        request, dram, peer, ssd, miss, dram::HUGEINT + peer + ssd + miss, asked)
    FROM warm_probes WHERE dram::HUGEINT + peer + ssd + miss <> asked OR least(dram, peer, ssd, miss) < 0
    UNION ALL
    SELECT stretch, seq, format('the lookup of the hint for {} is not told', request) FROM probes WHERE fact IS NULL
    UNION ALL
    SELECT stretch, seq, format('the lookup for a hint for {} is told, and no hint', request)
    FROM warm_probes ANTI JOIN hints USING (stretch, seq, instance, request, attempt)
    UNION ALL
    SELECT stretch, seq, format('the hint for {} asks for {} pages, its lookup for {}', request, asked_pages, asked)
    FROM probes WHERE asked <> asked_pages
    UNION ALL
    SELECT stretch, seq, format(
        'the lookup of the hint for {} saw dram {}, peer {}, ssd {}; it needs {} pages and has {} of them read',
        request, dram, peer, ssd, needed, reads)
    FROM probes WHERE operation IS NOT NULL AND (dram, peer, ssd) IS DISTINCT FROM (needed - reads, 0, reads)
    UNION ALL
    SELECT q.stretch, q.seq, format('demand {} takes generation {} for a DRAM hit, no lookup finds it', q.operation, q.generation)
    FROM query_pages q JOIN generations g USING (stretch, generation)
    WHERE q.tier = 'dram' AND (g.inserted_fact IS NULL OR g.inserted_fact > q.fact OR g.evicted_fact < q.fact)
    UNION ALL
    SELECT n.stretch, n.seq, format('hint {} needs page {}, which is neither in DRAM nor read for it', n.operation, n.page)
    FROM needed n JOIN stretches s USING (stretch)
    WHERE s.whole
        AND NOT EXISTS (
            FROM query_pages q WHERE q.stretch = n.stretch AND q.operation = n.operation
            AND q.part = n.part AND q.page_index = n.page_index)
        AND NOT EXISTS (
            FROM generations g WHERE g.stretch = n.stretch AND g.page = n.page
            AND g.inserted_fact < n.fact AND (g.evicted_fact IS NULL OR g.evicted_fact > n.fact))
)
SELECT * FROM violations;
