-- A page number stands for one key of a space that was opened, and no key has two at a time. It is let go only
-- when the page is in no tier, and nothing names it before it is bound or after that.
WITH
turns AS (
    SELECT stretch, fact, seq, page, space, key FROM pages_bound
    UNION ALL SELECT stretch, fact, seq, page, NULL, NULL FROM pages_unbound
),
followed AS (
    SELECT t.*, s.whole, lead(fact) OVER turn AS until_fact, lag(fact) OVER turn AS former_fact,
        lag(space) OVER turn AS former_space
    FROM turns t JOIN stretches s USING (stretch) WINDOW turn AS (PARTITION BY t.stretch, t.page ORDER BY t.fact)
),
keys AS (
    SELECT *, lag(page) OVER turn AS former_page, lag(until_fact) OVER turn AS former_until_fact
    FROM followed WHERE space IS NOT NULL
    WINDOW turn AS (PARTITION BY stretch, space, key ORDER BY fact)
),
named AS (
    SELECT stretch, page, allocated_fact AS fact, allocated_seq AS seq, 'takes memory' AS what, freed_fact AS until_fact
    FROM generation_lives
    UNION ALL
    SELECT stretch, page, since_fact, since_seq, 'takes a slot', ended_fact FROM slot_contents WHERE page IS NOT NULL
    UNION ALL
    SELECT stretch, page, queued_fact, queued_seq, 'is read', over_fact FROM read_lives WHERE queued_fact IS NOT NULL
    -- Before the last pages, which a trailing part needs, some may have no number.
    UNION ALL SELECT stretch, page, fact, seq, 'is hinted', 0 FROM hint_admitted_pages WHERE page <> 4294967295
    UNION ALL SELECT stretch, page, fact, seq, 'is waited for', 0 FROM query_waiting_pages WHERE page IS NOT NULL
    UNION ALL SELECT stretch, page, fact, seq, 'is claimed', 0 FROM pages_claimed
),
-- A page stands for nothing before the first of these, and from the end of the last of them on.
bindings AS (
    SELECT stretch, page, fact, if(space IS NULL, fact, until_fact) AS until_fact
    FROM followed WHERE space IS NOT NULL OR former_space IS NULL
),
standing AS (
    SELECT n.* REPLACE (n.what::ENUM (
        'takes memory', 'takes a slot', 'is read', 'is hinted', 'is waited for', 'is claimed') AS what),
        f.fact AS bound_fact, f.until_fact AS unbound_fact
    FROM named n ASOF LEFT JOIN bindings f ON f.stretch = n.stretch AND f.page = n.page AND f.fact < n.fact
)
SELECT stretch, seq, format('page {} is bound, and stands for a key already', page) AS why
FROM followed WHERE space IS NOT NULL AND former_space IS NOT NULL
UNION ALL
SELECT stretch, seq, format('page {} is unbound, and was not bound', page)
FROM followed WHERE space IS NULL AND former_space IS NULL AND (whole OR former_fact IS NOT NULL)
UNION ALL
SELECT stretch, seq, format('page {} is bound for the key of page {}', page, former_page)
FROM keys WHERE former_page IS NOT NULL AND (former_until_fact IS NULL OR former_until_fact > fact)
UNION ALL
SELECT f.stretch, f.seq, format('page {} is bound in space {}, which was not opened', f.page, f.space)
FROM followed f
ANTI JOIN space_opened o ON o.stretch = f.stretch AND o.space = f.space AND o.fact < f.fact
WHERE f.space IS NOT NULL AND f.whole
UNION ALL
SELECT n.stretch, n.seq, format('page {} {}, and stands for no key', n.page, n.what)
FROM standing n JOIN stretches s USING (stretch) WHERE (n.bound_fact IS NULL AND s.whole) OR n.unbound_fact < n.fact
UNION ALL
SELECT n.stretch, u.seq, format('page {} is unbound, and {} still', n.page,
    CASE n.what WHEN 'takes memory' THEN 'has memory' WHEN 'takes a slot' THEN 'has a slot' ELSE 'is being read' END)
FROM (FROM standing WHERE unbound_fact > fact AND (until_fact IS NULL OR until_fact > unbound_fact)) n
JOIN pages_unbound u ON u.stretch = n.stretch AND u.fact = n.unbound_fact AND u.page = n.page
