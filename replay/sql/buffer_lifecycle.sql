-- A buffer is allocated only while it is free, is freed once, and is named by other facts only between the two.
WITH
allocations AS (
    SELECT stretch, allocated_seq AS seq, allocated_fact AS fact, buffer, generation,
        lag(generation) OVER turn AS former, lag(freed_fact) OVER turn AS former_freed_fact
    FROM generation_lives WINDOW turn AS (PARTITION BY stretch, buffer ORDER BY allocated_fact)
)
SELECT stretch, seq, format('buffer {} is allocated for generation {}, generation {} stands in it still',
    buffer, generation, former) AS why
FROM allocations WHERE former IS NOT NULL AND (former_freed_fact IS NULL OR former_freed_fact > fact)
UNION ALL
SELECT u.stretch, u.seq, format('buffer {} is {}, its generation {} was freed before',
    u.buffer, u.what, u.generation)
FROM buffer_uses u JOIN generation_lives g USING (stretch, generation)
WHERE g.freed_fact < g.last_fact AND u.fact > g.freed_fact
UNION ALL
SELECT u.stretch, u.seq, format('buffer {} is {}, and was never allocated', u.buffer, u.what)
FROM buffer_uses u JOIN stretches s USING (stretch)
WHERE u.generation IS NULL AND s.whole
