-- generation_lives: one row for each DRAM page that was allocated in this stretch of the log, with the first
-- time that each thing happened to it; last_fact is the last of all, saving_fact and last_saving_fact are the
-- first and last of a save after its beginning. Of a number that is given out twice, the first.
CREATE TABLE generation_lives AS
WITH
life AS (
    SELECT stretch, generation,
        min(fact) FILTER (what = 'inserted') AS inserted_fact,
        min(seq) FILTER (what = 'inserted') AS inserted_seq,
        min(fact) FILTER (what = 'evicted') AS evicted_fact,
        min(seq) FILTER (what = 'evicted') AS evicted_seq,
        arg_min(evicted_for, fact) FILTER (what = 'evicted') AS evicted_for,
        min(fact) FILTER (what = 'promoted') AS promoted_fact,
        min(fact) FILTER (what = 'freed') AS freed_fact,
        min(seq) FILTER (what = 'freed') AS freed_seq,
        min(fact) FILTER (what = 'begun') AS begun_fact,
        min(seq) FILTER (what = 'begun') AS begun_seq,
        min(fact) FILTER (what = 'sealing') AS sealing_fact,
        min(seq) FILTER (what = 'sealing') AS sealing_seq,
        min(fact) FILTER (what = 'sealed') AS sealed_fact,
        min(seq) FILTER (what = 'sealed') AS sealed_seq,
        min(fact) FILTER (what = 'dropped') AS dropped_fact,
        min(seq) FILTER (what = 'dropped') AS dropped_seq,
        min(fact) FILTER (what = 'given up') AS given_up_fact,
        min(seq) FILTER (what = 'given up') AS given_up_seq,
        min(fact) FILTER (what IN ('joined', 'copied into', 'filled', 'not filled', 'sealing', 'seal ended', 'sealed',
            'dropped', 'given up')) AS saving_fact,
        max(fact) FILTER (what IN ('joined', 'copied into', 'sealing', 'sealed', 'dropped')) AS last_saving_fact,
        max(fact) FILTER (what = 'given up') AS last_given_up_fact,
        max(fact) AS last_fact
    FROM buffer_uses WHERE generation IS NOT NULL GROUP BY ALL
),
doubled AS (
    SELECT stretch, generation, min(fact) AS first_fact FROM buffers_allocated GROUP BY ALL HAVING count(*) > 1
)
SELECT a.stretch, a.generation, a.buffer, a.page, a.footprint_bytes, a.slot_bytes, a.offset_bytes,
    a.fact AS allocated_fact, a.seq AS allocated_seq, life.* EXCLUDE (stretch, generation)
FROM buffers_allocated a LEFT JOIN life USING (stretch, generation) LEFT JOIN doubled d USING (stretch, generation)
WHERE a.fact = coalesce(d.first_fact, a.fact);
