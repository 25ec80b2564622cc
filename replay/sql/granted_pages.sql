-- A demand that is granted goes on with every page up to its boundary exactly once: as a DRAM hit, or by a read
-- that it queues or joins, in the record of its grant. It is cut before the first page that failed or found no
-- room, and no further.
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
),
-- The first page of each part that will never come, at each cut; of a demand of one whole part no more is cut.
lost AS (
    SELECT c.stretch, c.operation, c.fact, c.seq, c.part, c.reach, min(q.page_index) AS page_index
    FROM query_cut_reach c
    JOIN query_pages q USING (stretch, operation, part)
    JOIN read_lives r ON r.stretch = q.stretch AND r.read = q.read
    WHERE coalesce(r.dropped_fact, r.ended_fact) < c.fact AND r.landed_fact IS NULL
    GROUP BY ALL
),
alone AS (
    SELECT stretch, operation FROM query_opened_parts GROUP BY ALL HAVING count(*) = 1 AND max(trailing_pages) = 0
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
UNION ALL
SELECT l.stretch, l.seq, format('demand {}.{} is cut to {} pages of part {}, its page {} is the first that is lost',
    l.operation >> 32, l.operation & 4294967295, l.reach, l.part, l.page_index)
FROM lost l LEFT JOIN alone a USING (stretch, operation)
WHERE l.page_index < l.reach OR (a.operation IS NOT NULL AND l.page_index <> l.reach)
