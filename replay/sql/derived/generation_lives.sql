-- generation_lives: one row for each DRAM page that was allocated in this stretch of the log, with the first
-- time that each thing happened to it, and how often those happened that may happen once.
CREATE TABLE generation_lives AS
WITH life AS (
    SELECT stretch, generation,
        min(fact) FILTER (what = 'inserted') AS inserted_fact,
        min(seq) FILTER (what = 'inserted') AS inserted_seq,
        count(*) FILTER (what = 'inserted') AS insertions,
        min(fact) FILTER (what = 'evicted') AS evicted_fact,
        min(seq) FILTER (what = 'evicted') AS evicted_seq,
        arg_min(cause, fact) FILTER (what = 'evicted') AS evicted_for,
        count(*) FILTER (what = 'evicted') AS evictions,
        min(fact) FILTER (what = 'promoted') AS promoted_fact,
        min(fact) FILTER (what = 'freed') AS freed_fact,
        min(seq) FILTER (what = 'freed') AS freed_seq,
        count(*) FILTER (what = 'freed') AS frees,
        min(fact) FILTER (what = 'begun') AS begun_fact,
        min(seq) FILTER (what = 'begun') AS begun_seq,
        min(fact) FILTER (what = 'sealed') AS sealed_fact,
        min(seq) FILTER (what = 'sealed') AS sealed_seq,
        min(fact) FILTER (what = 'dropped') AS dropped_fact,
        min(seq) FILTER (what = 'dropped') AS dropped_seq,
        min(fact) FILTER (what = 'given up') AS given_up_fact,
        min(seq) FILTER (what = 'given up') AS given_up_seq,
        max(fact) AS last_fact
    FROM buffer_uses WHERE generation IS NOT NULL GROUP BY ALL
)
SELECT a.stretch, a.generation, a.buffer, a.page, a.footprint_bytes, a.slot_bytes, a.offset_bytes,
    a.fact AS allocated_fact, a.seq AS allocated_seq, life.* EXCLUDE (stretch, generation)
FROM buffers_allocated a LEFT JOIN life USING (stretch, generation);
