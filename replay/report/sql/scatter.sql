-- When each query was opened and how long its KV took; where there are many, all slow ones and an even choice
-- of the others.
--
-- $limit   how many at most
WITH ranked AS (
    SELECT opened_ms, usable_ms - opened_ms AS took_ms, request, incarnation, seq, asked_pages, dram, ssd, miss,
        wait_ms IS NOT NULL AS waited, lease IS NOT NULL AS hit, ending,
        row_number() OVER (ORDER BY usable_ms - opened_ms DESC, stretch, operation) AS slowness,
        row_number() OVER (ORDER BY stretch, operation) AS place, count(*) OVER () AS queries
    FROM asked WHERE usable_ms IS NOT NULL
)
SELECT * FROM ranked
WHERE slowness <= $limit / 4 OR place % ceil(queries / ($limit * 0.75))::BIGINT = 0
ORDER BY opened_ms;
