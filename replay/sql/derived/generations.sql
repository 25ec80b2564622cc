-- generations: one row for each DRAM page that was allocated in this stretch of the log.
--
-- inserted_*   from here on lookups of its page find it; null: they never did
-- evicted_*    from here on they do not
CREATE TABLE generations AS
WITH life AS (
    SELECT stretch, generation,
        min(fact) FILTER (what = 'inserted') AS inserted_fact,
        min(seq) FILTER (what = 'inserted') AS inserted_seq,
        min(fact) FILTER (what = 'evicted') AS evicted_fact,
        min(seq) FILTER (what = 'evicted') AS evicted_seq,
        arg_min(cause, fact) FILTER (what = 'evicted') AS evicted_for
    FROM generation_facts WHERE what IN ('inserted', 'evicted') GROUP BY ALL
)
SELECT b.stretch, b.generation, b.buffer, b.page, b.footprint_bytes, life.* EXCLUDE (stretch, generation)
FROM buffers_allocated b LEFT JOIN life USING (stretch, generation);
