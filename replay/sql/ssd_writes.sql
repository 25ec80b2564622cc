-- A page is queued for the SSD once it is saved, as far as the queue has room; a write is submitted from the queue
-- while the store takes writes, for a page that lookups find, and ends by a completion in a later record. A write
-- that fails, or whose page leaves DRAM while it is queued, is dropped, and says so.
WITH
turns AS (
    SELECT stretch, seq, fact, buffer, generation, what, lag(what) OVER turn AS former, lag(seq) OVER turn AS former_seq
    FROM buffer_uses
    WHERE what IN ('sealed', 'queued', 'written', 'not written') AND generation IS NOT NULL
    WINDOW turn AS (PARTITION BY stretch, generation ORDER BY fact)
),
known AS (
    SELECT t.*, g.evicted_fact, g.evicted_seq, g.inserted_fact, d.reason::VARCHAR AS reason
    FROM turns t JOIN generation_lives g USING (stretch, generation)
    LEFT JOIN writes_dropped d ON d.stretch = t.stretch AND d.fact = t.fact AND d.buffer = t.buffer
),
moves AS (
    SELECT stretch, fact, seq, if(what = 'queued', 1, -1) AS pages
    FROM turns WHERE what IN ('queued', 'written') OR (what = 'not written' AND former = 'queued')
),
queue AS (
    SELECT stretch, fact, seq, sum(pages) OVER (PARTITION BY stretch ORDER BY fact RANGE UNBOUNDED PRECEDING) AS pages
    FROM moves
),
ends AS (
    SELECT stretch, seq, fact, slot, 'written' AS what FROM slots_written
    UNION ALL SELECT stretch, seq, fact, slot, 'failed' FROM writes_failed
),
ended AS (
    SELECT e.*, w.generation, w.submitted_seq, w.ended_fact AS first_end_fact
    FROM ends e ASOF LEFT JOIN slot_writes w
        ON w.stretch = e.stretch AND w.slot = e.slot AND w.submitted_fact < e.fact
)
SELECT stretch, seq, format('generation {} is {}, and was {} before', generation,
    if(what = 'written', 'written to the SSD', what), coalesce(former, 'not saved')) AS why
FROM known
WHERE CASE what
    WHEN 'sealed' THEN former IS NOT NULL
    WHEN 'queued' THEN former IS NULL OR former IN ('queued', 'written')
    WHEN 'written' THEN former IS DISTINCT FROM 'queued'
    ELSE former IS NULL OR former = CASE reason WHEN 'failed' THEN 'queued' WHEN 'evicted' THEN 'sealed' ELSE 'written' END
        OR (reason = 'failed' AND former <> 'written') OR (reason = 'queue_full' AND former = 'queued')
END
UNION ALL
SELECT stretch, seq, format('generation {} is written to the SSD, no lookup finds it', generation)
FROM known WHERE what = 'written' AND (inserted_fact IS NULL OR inserted_fact > fact OR evicted_fact < fact)
UNION ALL
SELECT stretch, seq, format('generation {} is not written because it was evicted, it was not', generation)
FROM known WHERE reason = 'evicted' AND evicted_seq IS DISTINCT FROM seq
UNION ALL
SELECT k.stretch, k.seq, format('generation {} is not written because its write failed, it did not', k.generation)
FROM known k
ANTI JOIN ended e ON e.stretch = k.stretch AND e.seq = k.seq AND e.generation = k.generation AND e.what = 'failed'
WHERE k.reason = 'failed'
UNION ALL
SELECT e.stretch, e.seq, format('the write of generation {} failed, and is not dropped', e.generation)
FROM ended e ANTI JOIN known k ON k.stretch = e.stretch AND k.seq = e.seq AND k.generation = e.generation
    AND k.reason = 'failed'
WHERE e.what = 'failed' AND e.generation IS NOT NULL
UNION ALL
SELECT q.stretch, q.seq, format('{} pages are queued to be written, the queue has room for {}',
    q.pages, c.ssd_write_queue_pages_max)
FROM queue q JOIN config c USING (stretch) WHERE q.pages > c.ssd_write_queue_pages_max
UNION ALL
SELECT k.stretch, k.seq, format('generation {} is not written because the queue is full, it holds {} of {} pages',
    k.generation, coalesce(q.pages, 0), c.ssd_write_queue_pages_max)
FROM (FROM known WHERE reason = 'queue_full') k
JOIN config c USING (stretch)
ASOF LEFT JOIN queue q ON q.stretch = k.stretch AND q.fact < k.fact
WHERE coalesce(q.pages, 0) < c.ssd_write_queue_pages_max
UNION ALL
SELECT w.stretch, w.seq, format('generation {} is {}, the store takes {}', w.generation,
    if(w.reason = 'degraded', 'not written because the store takes no writes', w.what),
    if(c.writable IS FALSE, 'none', 'all'))
FROM (FROM known WHERE what IN ('queued', 'written') OR reason = 'degraded') w
JOIN stretches s USING (stretch)
ASOF LEFT JOIN store_changed c ON c.stretch = w.stretch AND c.fact < w.fact
WHERE (w.reason = 'degraded' AND (c.writable IS TRUE OR (c.writable IS NULL AND s.whole)))
    OR (w.what IN ('queued', 'written') AND c.writable IS FALSE)
UNION ALL
SELECT e.stretch, e.seq, format('the write of slot {} ends, and none was submitted', e.slot)
FROM ended e JOIN stretches s USING (stretch)
WHERE (e.submitted_seq IS NULL AND s.whole) OR e.first_end_fact < e.fact
UNION ALL
SELECT stretch, seq, format('the write of slot {} ends in the record that submits it', slot)
FROM ended WHERE submitted_seq = seq
