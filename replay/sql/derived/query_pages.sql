-- query_pages: one row for each page that a demand goes on with after its grant, or that a hint has read.
--
-- fact, seq        where the operation took it: a grant, or the queueing or joining of a read
-- position         as those facts count: through the parts in order, of a trailing part only the needed pages
-- page_index       the page's place among all pages of its part
-- tier             where the page comes from: dram, or ssd
-- had_*            the demand's DRAM hit was granted, or its read has landed; null: never
-- let_go_*         from here on the operation does not want or own it: a cut, its lease's release, its end
-- held             it owned the page's generation from had_* to let_go_*; hints own none
-- lease_position   its place among the pages of the lease, where a cut makes the counting begin anew
CREATE TABLE query_pages AS
WITH
hint_reaches AS (
    SELECT p.stretch, p.operation, p.fact, p.seq, p.part, count(h.page) AS reach
    FROM hint_admitted_parts p LEFT JOIN hint_admitted_pages h USING (stretch, operation, part) GROUP BY ALL
),
reaches AS (
    SELECT stretch, operation, fact, seq, part, reach FROM query_granted_reach
    UNION ALL SELECT stretch, operation, fact, seq, part, reach FROM query_cut_reach
    UNION ALL SELECT stretch, operation, fact, seq, part, reach FROM hint_reaches
),
parts AS (
    SELECT stretch, operation, part, trailing_pages FROM query_opened_parts
    UNION SELECT stretch, operation, part, trailing_pages FROM hint_admitted_parts
),
bounds AS (
    SELECT r.*, if(p.trailing_pages = 0, 0, greatest(r.reach - p.trailing_pages, 0)) AS low
    FROM reaches r JOIN parts p USING (stretch, operation, part)
),
windows AS (
    SELECT *,
        sum(reach - low) OVER (PARTITION BY stretch, operation, fact ORDER BY part) - (reach - low)
            AS first_position,
        rank() OVER (PARTITION BY stretch, operation ORDER BY fact) = 1 AS is_first,
        rank() OVER (PARTITION BY stretch, operation ORDER BY fact DESC) = 1 AS is_last
    FROM bounds
),
taken AS (
    SELECT h.stretch, h.operation, h.fact, h.seq, h.position, 'dram' AS tier, NULL AS read, u.generation
    FROM query_granted_hits h LEFT JOIN buffer_uses u
        ON u.stretch = h.stretch AND u.fact = h.fact AND u.buffer = h.buffer AND u.what = 'granted'
    UNION ALL
    SELECT q.stretch, q.operation, q.fact, q.seq, q.position, 'ssd', q.read, r.generation
    FROM (
        SELECT stretch, operation, fact, seq, position, read FROM reads_queued
        UNION ALL SELECT stretch, operation, fact, seq, position, read FROM reads_joined
    ) q LEFT JOIN read_lives r USING (stretch, read)
),
placed AS (
    SELECT t.*, w.part, w.low + t.position - w.first_position AS page_index
    FROM taken t LEFT JOIN windows w
        ON w.stretch = t.stretch AND w.operation = t.operation AND w.is_first
        AND t.position >= w.first_position AND t.position < w.first_position + w.reach - w.low
),
cuts AS (
    SELECT p.stretch, p.fact, p.position, min(w.fact) AS cut_fact, min(w.seq) AS cut_seq
    FROM placed p JOIN windows w USING (stretch, operation, part)
    WHERE NOT w.is_first AND (p.page_index < w.low OR p.page_index >= w.reach)
    GROUP BY ALL
),
kept AS (
    SELECT p.*, o.kind, o.known, o.lease, r.landed_fact, r.landed_seq,
        least(c.cut_fact, o.let_go_fact) AS let_go_fact,
        least(c.cut_seq, o.let_go_seq) AS let_go_seq,
        if(c.cut_fact IS NULL, w.first_position + p.page_index - w.low, NULL) AS lease_position
    FROM placed p
    LEFT JOIN operations o ON o.stretch = p.stretch AND o.operation = p.operation
    LEFT JOIN cuts c ON c.stretch = p.stretch AND c.fact = p.fact AND c.position = p.position
    LEFT JOIN windows w
        ON w.stretch = p.stretch AND w.operation = p.operation AND w.part = p.part AND w.is_last
    LEFT JOIN read_lives r ON r.stretch = p.stretch AND r.read = p.read
)
SELECT
    stretch, operation, kind, known, lease, fact, seq, position, part, page_index, tier, read, generation,
    let_go_fact, let_go_seq, lease_position,
    if(tier = 'dram', fact, if(landed_fact IS NULL, NULL, greatest(landed_fact, fact))) AS had_fact,
    if(tier = 'dram', seq, if(landed_fact IS NULL, NULL, greatest(landed_seq, seq))) AS had_seq,
    kind = 'demand' AND had_fact IS NOT NULL AND (let_go_fact IS NULL OR had_fact < let_go_fact) AS held
FROM kept;
