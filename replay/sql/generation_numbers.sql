-- Generations are numbered from 1 without a gap, so none is ever given to two pages.
WITH numbered AS (
    SELECT stretch, fact, seq, generation,
        lag(generation) OVER (PARTITION BY stretch ORDER BY fact, generation) AS former
    FROM buffers_allocated
)
SELECT n.stretch, n.seq, format('generation {} is given out after generation {}', n.generation,
    coalesce(n.former, 0)) AS why
FROM numbered n JOIN stretches s USING (stretch)
WHERE n.generation <> coalesce(n.former, if(s.whole, 0, n.generation - 1)) + 1
