-- generation_facts: what happened to DRAM pages, one row for each page of each fact.
--
-- generation   null: the page's memory was allocated before this stretch of the log begins
-- what         inserted, evicted, prepared, restored or unused
-- cause        of an eviction or of unused, in words
CREATE TABLE generation_facts AS
WITH told AS (
    SELECT stretch, seq, fact, buffer, 'inserted' AS what, NULL AS cause FROM pages_inserted
    UNION ALL SELECT stretch, seq, fact, buffer, 'evicted', reason::VARCHAR FROM pages_evicted
    UNION ALL SELECT stretch, seq, fact, buffer, 'prepared', NULL FROM pages_prepared
    UNION ALL SELECT stretch, seq, fact, buffer, 'restored', NULL FROM pages_restored
    UNION ALL SELECT stretch, seq, fact, buffer, 'unused', cause::VARCHAR FROM pages_unused
)
SELECT t.stretch, t.seq, t.fact, t.buffer, t.what, t.cause, b.generation, b.footprint_bytes
FROM told t ASOF LEFT JOIN buffers_allocated b
    ON b.stretch = t.stretch AND b.buffer = t.buffer AND b.fact <= t.fact;
