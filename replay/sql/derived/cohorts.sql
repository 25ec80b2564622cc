-- cohorts: one row for each prepared generation, from its landing to its outcome.
--
-- prepared_*, restored_*, unused_*   as the facts tell
-- synced_seq     first successful GPU sync that named it
-- released_seq   first record at whose end no cache, query, lease or copy owns it; null: one still does
-- judged         nothing that concerns it is older than this stretch of the log
--
-- An SSD write or a read in flight delays the reuse of its memory and owns nothing; nor does a hint.
CREATE TABLE cohorts AS
WITH
told AS (
    SELECT stretch, generation,
        min(seq) FILTER (what = 'prepared') AS prepared_seq,
        min(fact) FILTER (what = 'prepared') AS prepared_fact,
        min(seq) FILTER (what = 'restored') AS restored_seq,
        min(fact) FILTER (what = 'restored') AS restored_fact,
        min(seq) FILTER (what = 'unused') AS unused_seq,
        min(fact) FILTER (what = 'unused') AS unused_fact,
        arg_min(unused_for, fact) FILTER (what = 'unused') AS unused_for
    FROM buffer_uses WHERE generation IS NOT NULL GROUP BY ALL
    HAVING prepared_seq IS NOT NULL
),
closed AS (SELECT stretch, min(seq) AS closed_seq FROM incarnation_closed GROUP BY ALL),
owners AS (
    SELECT stretch, generation, inserted_seq AS since_seq, evicted_seq AS until_seq
    FROM generation_lives WHERE inserted_seq IS NOT NULL
    UNION ALL
    SELECT stretch, generation, had_seq, let_go_seq FROM query_pages WHERE held
),
spans AS (
    SELECT t.stretch, t.generation, t.prepared_seq, o.since_seq,
        least(o.until_seq, c.closed_seq, 9223372036854775807) AS until_seq
    FROM told t JOIN owners o USING (stretch, generation) LEFT JOIN closed c USING (stretch)
    WHERE o.until_seq IS NULL OR o.since_seq < o.until_seq
),
-- Spans that meet are one. Before the first gap the last owner let go.
covers AS (
    SELECT *, coalesce(max(until_seq) OVER (
        PARTITION BY stretch, generation ORDER BY since_seq, until_seq
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), prepared_seq) AS covered_seq
    FROM spans
),
releases AS (
    SELECT stretch, generation,
        coalesce(min(covered_seq) FILTER (since_seq > covered_seq), max(until_seq)) AS released_seq
    FROM covers GROUP BY ALL
),
syncs AS (
    SELECT q.stretch, q.generation, min(s.seq) AS synced_seq
    FROM query_pages q JOIN gpu_synced_ranges s
        ON s.stretch = q.stretch AND s.lease = q.lease
        AND q.lease_position >= s.first_position AND q.lease_position < s.end_position
    GROUP BY ALL
),
landings AS (
    SELECT stretch, generation, bool_and(queued_fact IS NOT NULL) AS queued_here FROM read_lives GROUP BY ALL
),
strangers AS (SELECT DISTINCT stretch, generation FROM query_pages WHERE NOT known)
SELECT t.*, g.buffer, g.page, g.footprint_bytes, g.inserted_seq, g.evicted_seq, g.evicted_for, s.synced_seq,
    nullif(coalesce(r.released_seq, t.prepared_seq), 9223372036854775807) AS released_seq,
    stretches.whole OR (l.queued_here IS TRUE AND x.generation IS NULL) AS judged
FROM told t
JOIN stretches USING (stretch)
JOIN generation_lives g USING (stretch, generation)
LEFT JOIN releases r USING (stretch, generation)
LEFT JOIN syncs s USING (stretch, generation)
LEFT JOIN landings l USING (stretch, generation)
LEFT JOIN strangers x USING (stretch, generation);
