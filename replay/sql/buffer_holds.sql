-- A page's memory is freed in the record in which the last of its holders lets go, and not before: the index,
-- demands with their leases and copies, saves, reads and writes under way. What is held is not evicted; a write
-- under way alone does not keep an operator's cleanup from it.
WITH
-- Who takes it only after it was freed is not its holder.
last AS (
    SELECT h.stretch, h.generation, max(until_fact) AS until_fact, max(until_seq) AS until_seq,
        arg_max(holder, until_fact) AS holder, min(since_seq) AS since_seq, bool_and(known) AS known
    FROM holds h JOIN generation_lives g USING (stretch, generation)
    WHERE g.freed_fact IS NULL OR h.since_fact < g.freed_fact
    GROUP BY ALL
),
lives AS (
    SELECT g.stretch, g.generation, g.buffer, g.allocated_seq, g.freed_seq, g.freed_fact,
        l.until_fact, l.until_seq, l.holder, l.since_seq
    FROM generation_lives g LEFT JOIN last l USING (stretch, generation)
    WHERE l.known IS NOT FALSE
)
SELECT stretch, freed_seq AS seq, format('buffer {} is freed, and held still: generation {}, {}',
    buffer, generation, holder) AS why
FROM lives WHERE freed_fact < until_fact
UNION ALL
SELECT stretch, until_seq, format('buffer {} is not freed, and its last holder lets go: generation {}, {}',
    buffer, generation, holder)
FROM lives WHERE until_seq < 9223372036854775807 AND freed_seq IS DISTINCT FROM until_seq
    AND (freed_seq IS NULL OR freed_seq > until_seq)
UNION ALL
SELECT stretch, allocated_seq, format('buffer {} is allocated for generation {}, and nobody holds it then',
    buffer, generation)
FROM lives WHERE since_seq IS DISTINCT FROM allocated_seq AND freed_seq IS DISTINCT FROM allocated_seq
UNION ALL
SELECT u.stretch, u.seq, format('generation {} is evicted, and held still: {}', u.generation, h.holder)
FROM pages_evicted e
JOIN buffer_uses u ON u.stretch = e.stretch AND u.fact = e.fact AND u.buffer = e.buffer AND u.what = 'evicted'
JOIN holds h ON h.stretch = u.stretch AND h.generation = u.generation
WHERE h.holder <> 'index' AND (h.holder <> 'write' OR e.reason <> 'cleanup')
    AND h.since_fact < u.fact AND h.until_fact > u.fact
