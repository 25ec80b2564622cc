-- Engines: what each asked for, and the most of its budget that it held reserved. The busiest first.
WITH
names AS (
    SELECT stretch, instance, arg_min(name, fact) AS name, max(world_size) AS world_size
    FROM rank_registered GROUP BY ALL
),
levels AS (
    SELECT stretch, instance, seq, fact,
        sum(change_bytes) OVER (PARTITION BY stretch, instance ORDER BY fact) AS level
    FROM reservation_changes WHERE instance IS NOT NULL
),
settled AS (SELECT stretch, instance, seq, arg_max(level, fact) AS level FROM levels GROUP BY ALL),
peaks AS (SELECT stretch, instance, max(level) AS peak, arg_max(seq, level) AS peak_seq FROM settled GROUP BY ALL),
demands AS (
    SELECT stretch, instance, count(*) AS queries, sum(asked_pages) AS asked, sum(dram) AS dram, sum(ssd) AS ssd,
        sum(miss) AS miss, count(wait_ms) AS waited
    FROM asked GROUP BY ALL
)
SELECT p.incarnation, n.name, n.instance, n.world_size, d.queries, d.asked, d.dram, d.ssd, d.miss, d.waited,
    k.peak, k.peak_seq, c.instance_query_budget_bytes AS budget_bytes
FROM names n
JOIN spans p USING (stretch)
LEFT JOIN demands d USING (stretch, instance)
LEFT JOIN peaks k USING (stretch, instance)
LEFT JOIN config c USING (stretch)
ORDER BY d.queries DESC NULLS LAST, p.stretch, n.instance;
