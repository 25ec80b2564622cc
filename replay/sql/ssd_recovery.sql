-- What a restart finds on the SSD was written by an earlier incarnation: the same key, the same size. Where the log
-- still has that incarnation's records, they say so too.
WITH
recovered AS (
    SELECT r.*, s.log, s.incarnation AS own FROM slots_recovered r JOIN stretches s USING (stretch)
),
names AS (
    SELECT r.stretch, r.seq, r.slot, r.page, r.generation, r.incarnation, r.footprint_blocks, r.log, b.key
    FROM recovered r
    ASOF LEFT JOIN pages_bound b ON b.stretch = r.stretch AND b.page = r.page AND b.fact < r.fact
),
earlier AS (SELECT log, incarnation, stretch FROM stretches WHERE whole),
written AS (
    SELECT n.stretch, n.seq, n.slot, n.generation, n.incarnation, n.footprint_blocks, n.key, e.stretch AS old_stretch,
        g.page AS old_page, g.footprint_bytes, g.allocated_fact, c.next_seq
    FROM names n
    JOIN earlier e ON e.log = n.log AND e.incarnation = n.incarnation
    JOIN stretches c ON c.stretch = e.stretch
    LEFT JOIN generation_lives g ON g.stretch = e.stretch AND g.generation = n.generation
),
told AS (
    SELECT w.*, b.key AS old_key
    FROM (FROM written WHERE allocated_fact IS NOT NULL) w
    ASOF LEFT JOIN pages_bound b ON b.stretch = w.old_stretch AND b.page = w.old_page AND b.fact < w.allocated_fact
)
SELECT stretch, seq, format('slot {} is recovered as of incarnation {}', slot, incarnation) AS why
FROM recovered WHERE incarnation NOT BETWEEN 1 AND own - 1
UNION ALL
SELECT stretch, seq, format('slot {} is recovered with the key of another page than generation {} of incarnation {}',
    slot, generation, incarnation)
FROM told WHERE key <> old_key
UNION ALL
SELECT stretch, seq, format('slot {} is recovered with {} bytes, generation {} of incarnation {} had {}',
    slot, footprint_blocks * 4096, generation, incarnation, footprint_bytes)
FROM told WHERE footprint_blocks * 4096 <> footprint_bytes
