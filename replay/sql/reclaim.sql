-- Reclaim takes pages of the size that needs room, reclaimable before retained ones, a bounded number at a time,
-- and only for an allocation; for a hint it takes reclaimable ones alone, and never that hint's own. An operator's
-- cleanup takes every page that nobody holds. A superblock that is emptied for another page size is returned.
WITH
evicted AS (
    SELECT e.stretch, e.seq, e.fact, e.buffer, e.page_class, e.reason, u.generation, g.page, g.offset_bytes,
        g.slot_bytes
    FROM pages_evicted e
    JOIN buffer_uses u ON u.stretch = e.stretch AND u.fact = e.fact AND u.buffer = e.buffer AND u.what = 'evicted'
    LEFT JOIN generation_lives g ON g.stretch = u.stretch AND g.generation = u.generation
),
batches AS (
    SELECT stretch, seq, fact, page_class, reason, count(*) AS pages, any_value(slot_bytes) AS slot_bytes
    FROM evicted GROUP BY ALL
),
-- What the room is for.
tries AS (
    SELECT a.stretch, a.seq, a.fact, min(r.read) AS read, bool_or(g.begun_fact IS NOT NULL) AS for_save,
        bool_or(r.foreground) AS foreground, NULL AS operation
    FROM buffers_allocated a
    JOIN generation_lives g ON g.stretch = a.stretch AND g.generation = a.generation
    LEFT JOIN read_lives r ON r.stretch = a.stretch AND r.generation = a.generation
    GROUP BY ALL
    UNION ALL
    SELECT stretch, seq, fact, NULL, operation = 0, NULL, operation FROM allocation_failed
),
tried AS (
    SELECT b.*, t.seq AS tried_seq, t.fact AS tried_fact, t.for_save, t.foreground, t.operation, t.read
    FROM (FROM batches WHERE reason <> 'cleanup') b
    ASOF LEFT JOIN tries t ON t.stretch = b.stretch AND t.fact > b.fact
),
for_hints AS (
    SELECT t.*, coalesce(q.operation, t.operation) AS hint
    FROM tried t
    LEFT JOIN reads_queued q ON q.stretch = t.stretch AND q.read = t.read
    LEFT JOIN hint_admitted h ON h.stretch = t.stretch AND h.operation = t.operation
    WHERE t.tried_seq = t.seq AND NOT t.for_save AND (t.foreground IS FALSE OR h.operation IS NOT NULL)
),
-- Reclaimable pages that nobody holds, as spans of facts: between insertion and promotion or eviction, without
-- the time in which a demand, a write or a read has them.
reclaimable AS (
    SELECT g.stretch, g.generation, g.slot_bytes, g.inserted_fact AS since_fact,
        least(coalesce(g.promoted_fact, 9223372036854775807), coalesce(g.evicted_fact, 9223372036854775807))
            AS until_fact
    FROM generation_lives g
    JOIN pages_inserted i ON i.stretch = g.stretch AND i.fact = g.inserted_fact AND i.buffer = g.buffer
    WHERE i.page_class = 'reclaimable'
),
taken AS (
    SELECT stretch, generation, slot_bytes, since_fact AS from_fact, since_fact AS to_fact, until_fact AS end_fact
    FROM reclaimable
    UNION ALL
    SELECT r.stretch, r.generation, r.slot_bytes, greatest(h.since_fact, r.since_fact),
        least(h.until_fact, r.until_fact), r.until_fact
    FROM reclaimable r JOIN holds h USING (stretch, generation)
    WHERE h.holder <> 'index' AND h.until_fact > r.since_fact AND h.since_fact < r.until_fact
),
gaps AS (
    SELECT stretch, generation, slot_bytes,
        max(to_fact) OVER (turn ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS free_from_fact,
        coalesce(lead(from_fact) OVER turn, end_fact) AS free_to_fact
    FROM taken WINDOW turn AS (PARTITION BY stretch, generation ORDER BY from_fact, to_fact)
),
moves AS (
    SELECT stretch, slot_bytes, free_from_fact AS fact, 1 AS pages FROM gaps WHERE free_from_fact < free_to_fact
    UNION ALL SELECT stretch, slot_bytes, free_to_fact, -1 FROM gaps
    WHERE free_from_fact < free_to_fact AND free_to_fact < 9223372036854775807
),
free AS (
    SELECT stretch, slot_bytes, fact,
        sum(pages) OVER (PARTITION BY stretch, slot_bytes ORDER BY fact RANGE UNBOUNDED PRECEDING) AS pages
    FROM moves
),
order_of_classes AS (
    SELECT b.stretch, b.seq, format('{} retained pages are evicted, {} reclaimable ones are there', b.pages, f.pages) AS why
    FROM (FROM batches WHERE page_class = 'retained' AND reason = 'capacity') b
    ASOF JOIN free f ON f.stretch = b.stretch AND f.slot_bytes = b.slot_bytes AND f.fact < b.fact
    WHERE f.pages > 0
),
cleanups AS (
    SELECT g.stretch, r.seq, g.generation, r.fact
    FROM (
        SELECT stretch, generation, inserted_fact, evicted_fact FROM generation_lives WHERE inserted_fact IS NOT NULL
    ) g
    ASOF JOIN (FROM records WHERE cause = 'DropDram') r ON r.stretch = g.stretch AND r.fact >= g.inserted_fact
    WHERE g.evicted_fact IS NULL OR g.evicted_fact > r.fact
)
SELECT b.stretch, b.seq, format('{} pages are evicted in one batch, {} may be', b.pages,
    c.reclaim_batch_pages_max) AS why
FROM batches b JOIN config c USING (stretch) WHERE b.reason = 'capacity' AND b.pages > c.reclaim_batch_pages_max
UNION ALL
SELECT b.stretch, b.seq, format('pages of {} and of {} bytes are evicted to make room', min(e.slot_bytes),
    max(e.slot_bytes))
FROM batches b JOIN evicted e USING (stretch, fact) WHERE b.reason = 'capacity'
GROUP BY b.stretch, b.seq, b.fact HAVING min(e.slot_bytes) <> max(e.slot_bytes)
UNION ALL
SELECT stretch, seq, format('{} pages are evicted ({}), and nothing is allocated', pages, reason)
FROM tried WHERE tried_seq IS DISTINCT FROM seq
UNION ALL
SELECT stretch, seq, format('{} retained pages are evicted for a hint', pages)
FROM for_hints WHERE page_class = 'retained'
UNION ALL
SELECT e.stretch, e.seq, format('page {} is evicted for hint {}.{}, which names it', e.page,
    f.hint >> 32, f.hint & 4294967295)
FROM for_hints f JOIN evicted e USING (stretch, fact)
JOIN hint_admitted_pages h ON h.stretch = f.stretch AND h.operation = f.hint AND h.page = e.page
UNION ALL
FROM order_of_classes
UNION ALL
SELECT b.stretch, b.seq, format('{} pages are evicted to clean up, which no operator asks for', b.pages)
FROM batches b JOIN records r USING (stretch, seq) WHERE b.reason = 'cleanup' AND r.cause <> 'DropDram'
UNION ALL
SELECT b.stretch, b.seq, format('{} pages are evicted by an operator''s cleanup ({})', b.pages, b.reason)
FROM batches b JOIN records r USING (stretch, seq) WHERE b.reason <> 'cleanup' AND r.cause = 'DropDram'
UNION ALL
SELECT c.stretch, c.seq, format('generation {} is kept by a cleanup, and nobody holds it', c.generation)
FROM cleanups c JOIN stretches s USING (stretch)
ANTI JOIN holds h ON h.stretch = c.stretch AND h.generation = c.generation AND h.holder <> 'index'
    AND h.since_fact <= c.fact AND h.until_fact > c.fact
WHERE s.whole
UNION ALL
SELECT e.stretch, e.seq, format('generation {} is evicted to empty superblock {}, which is not returned',
    e.generation, e.offset_bytes // c.superblock_bytes)
FROM evicted e JOIN config c USING (stretch)
ANTI JOIN superblock_returned r ON r.stretch = e.stretch AND r.seq = e.seq
    AND r.superblock = e.offset_bytes // c.superblock_bytes AND r.fact > e.fact
WHERE e.reason = 'superblock' AND e.generation IS NOT NULL
