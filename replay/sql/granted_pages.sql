-- A demand that is granted goes on with every page up to its boundary exactly once: as a DRAM hit, or by a read
-- that it queues or joins, in the record of its grant.
WITH
windows AS (
    SELECT r.stretch, r.operation, r.fact, r.seq,
        sum(if(p.trailing_pages = 0, r.reach, least(r.reach, p.trailing_pages))) AS pages
    FROM query_granted_reach r JOIN query_opened_parts p USING (stretch, operation, part)
    GROUP BY ALL
),
taken AS (
    SELECT stretch, operation, count(*) AS pages, count(DISTINCT position) AS positions,
        max(position) AS last_position, max(seq) AS last_seq
    FROM query_pages WHERE kind = 'demand' GROUP BY ALL
)
SELECT w.stretch, w.seq, format('demand {}.{} goes on with {} pages, it takes {} at {} positions',
    w.operation >> 32, w.operation & 4294967295, w.pages, coalesce(t.pages, 0), coalesce(t.positions, 0)) AS why
FROM windows w LEFT JOIN taken t USING (stretch, operation)
WHERE (coalesce(t.pages, 0), coalesce(t.positions, 0)) IS DISTINCT FROM (w.pages, w.pages)
    OR t.last_position >= w.pages
UNION ALL
SELECT t.stretch, t.last_seq, format('demand {}.{} takes pages in other records than that of its grant',
    t.operation >> 32, t.operation & 4294967295)
FROM windows w JOIN taken t USING (stretch, operation) WHERE t.last_seq <> w.seq
