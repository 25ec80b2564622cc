-- The cohort ledger of each incarnation: bytes, and KiB x microseconds from a page's landing to its outcome.
--
-- Added up from the facts as they stand, so that a page that is restored twice counts twice here: whether the
-- ledger balances is for the invariant to say. `unjudged_pages` have a part of their life before the log.
WITH
booked AS (
    SELECT s.incarnation, f.what, f.unused_for::VARCHAR AS cause, f.footprint_bytes,
        f.footprint_bytes // 1024 * ((r.at_ns - p.at_ns) // 1000) AS wait_kib_us
    FROM buffer_uses f
    JOIN stretches s USING (stretch)
    JOIN records r ON r.stretch = f.stretch AND r.seq = f.seq
    LEFT JOIN cohorts c ON c.stretch = f.stretch AND c.generation = f.generation
    LEFT JOIN records p ON p.stretch = c.stretch AND p.seq = c.prepared_seq
    WHERE f.what IN ('prepared', 'restored', 'unused') AND f.generation IS NOT NULL
),
sums AS (
    SELECT incarnation,
        sum(footprint_bytes) FILTER (what = 'prepared') AS prepared_bytes,
        sum(footprint_bytes) FILTER (what = 'restored') AS restored_bytes,
        sum(footprint_bytes) FILTER (what = 'unused') AS unused_bytes,
        sum(wait_kib_us) FILTER (what = 'restored') AS restored_wait_kib_us,
        sum(wait_kib_us) FILTER (what = 'unused') AS unused_wait_kib_us
    FROM booked GROUP BY incarnation
),
causes AS (
    SELECT incarnation, map_from_entries(list((cause, bytes) ORDER BY cause)) AS unused_bytes_by_cause
    FROM (
        SELECT incarnation, cause, sum(footprint_bytes) AS bytes
        FROM booked WHERE what = 'unused' GROUP BY ALL
    )
    GROUP BY incarnation
),
open AS (
    SELECT s.incarnation,
        sum(footprint_bytes) FILTER (restored_seq IS NULL AND unused_seq IS NULL) AS pending_bytes,
        count(*) FILTER (NOT judged) AS unjudged_pages
    FROM cohorts JOIN stretches s USING (stretch) GROUP BY s.incarnation
)
SELECT i.incarnation,
    coalesce(prepared_bytes, 0) AS prepared_bytes,
    coalesce(restored_bytes, 0) AS restored_bytes,
    coalesce(unused_bytes, 0) AS unused_bytes,
    coalesce(unused_bytes_by_cause, MAP {}) AS unused_bytes_by_cause,
    coalesce(pending_bytes, 0) AS pending_bytes,
    coalesce(restored_wait_kib_us, 0) AS restored_wait_kib_us,
    coalesce(unused_wait_kib_us, 0) AS unused_wait_kib_us,
    coalesce(unjudged_pages, 0) AS unjudged_pages
FROM (SELECT DISTINCT incarnation FROM stretches) i
LEFT JOIN sums USING (incarnation)
LEFT JOIN causes USING (incarnation)
LEFT JOIN open USING (incarnation)
ORDER BY i.incarnation;
