-- Each level over time: for each bucket the highest value in it, so that no peak is lost.
WITH
sums AS (
    SELECT stretch, series, seq, fact,
        sum(delta) OVER (PARTITION BY stretch, series ORDER BY fact) AS level,
        row_number() OVER (PARTITION BY stretch, series, seq ORDER BY fact DESC) = 1 AS settled
    FROM (SELECT stretch, series, seq, fact, sum(delta) AS delta FROM level_changes GROUP BY ALL)
),
-- What a level is while one record is being applied is nothing that ever was.
placed AS (
    SELECT s.stretch, s.series, s.fact, s.level, floor((m.ms - p.begin_ms) / p.bucket_ms)::BIGINT AS bucket
    FROM sums s JOIN moments m USING (stretch, seq) JOIN spans p USING (stretch) WHERE s.settled
),
peaks AS (
    SELECT stretch, series, bucket, max(level) AS highest, arg_max(level, fact) AS last
    FROM placed GROUP BY ALL
),
drawn AS (SELECT DISTINCT stretch, series FROM peaks),
steps AS (
    SELECT d.series, g.stretch, g.bucket, g.left_ms, p.last, p.bucket AS seen, p.highest
    FROM drawn d JOIN grid g USING (stretch)
    ASOF LEFT JOIN peaks p
        ON p.stretch = d.stretch AND p.series = d.series AND p.bucket <= g.bucket
)
SELECT series, stretch, left_ms AS ms,
    greatest(
        if(seen = bucket, highest, last),
        coalesce(lag(last) OVER (PARTITION BY series, stretch ORDER BY bucket), 0), 0) AS value
FROM steps ORDER BY series, stretch, bucket;
