-- The bytes in flight to and from the SSD never exceed their limit, and those that no demand waited for at their
-- submission never the part of it that is not reserved for the foreground. A single larger page goes alone.
WITH
spans AS (
    SELECT r.stretch, r.submitted_fact, r.submitted_seq, r.ended_fact, g.slot_bytes AS bytes, r.foreground
    FROM read_lives r JOIN generation_lives g USING (stretch, generation)
    UNION ALL
    SELECT w.stretch, w.submitted_fact, w.submitted_seq, w.ended_fact, g.slot_bytes, false
    FROM slot_writes w JOIN generation_lives g USING (stretch, generation)
),
moves AS (
    SELECT stretch, submitted_fact AS fact, submitted_seq AS seq, bytes, if(foreground, 0, bytes) AS background
    FROM spans
    UNION ALL
    SELECT stretch, ended_fact, NULL, -bytes, if(foreground, 0, -bytes) FROM spans WHERE ended_fact IS NOT NULL
),
summed AS (
    SELECT stretch, fact, max(seq) AS seq, sum(bytes) AS bytes, sum(background) AS background,
        max(bytes) AS page_bytes
    FROM moves GROUP BY stretch, fact
),
running AS (
    SELECT stretch, fact, seq, page_bytes, background <> 0 AS is_background,
        sum(bytes) OVER so_far AS in_flight, sum(background) OVER so_far AS background
    FROM summed WINDOW so_far AS (PARTITION BY stretch ORDER BY fact ROWS UNBOUNDED PRECEDING)
)
SELECT r.stretch, r.seq, format('{} bytes are in flight, the limit is {}',
    r.in_flight, c.ssd_inflight_bytes_max) AS why
FROM running r JOIN config c USING (stretch)
WHERE r.seq IS NOT NULL AND r.in_flight > greatest(c.ssd_inflight_bytes_max, r.page_bytes)
UNION ALL
SELECT r.stretch, r.seq, format('{} bytes that no demand waits for are in flight, the limit is {}',
    r.background, c.ssd_inflight_bytes_max - c.ssd_foreground_reserved_bytes)
FROM running r JOIN config c USING (stretch)
WHERE r.seq IS NOT NULL AND r.is_background
    AND r.background > greatest(c.ssd_inflight_bytes_max - c.ssd_foreground_reserved_bytes, r.page_bytes)
