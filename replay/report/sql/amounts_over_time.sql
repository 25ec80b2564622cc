-- What charts that add up over time show: how much, for each bar where there is anything.
--
-- $buckets   that a bar is wide
SELECT chart, series, stretch, begin_ms + bar * width_ms AS left_ms, begin_ms + (bar + 1) * width_ms AS right_ms,
    sum(amount) AS amount
FROM (
    SELECT a.*, p.begin_ms, p.bucket_ms * $buckets AS width_ms, floor((m.ms - p.begin_ms) / width_ms)::BIGINT AS bar
    FROM amounts a JOIN moments m USING (stretch, seq) JOIN spans p USING (stretch)
)
GROUP BY ALL HAVING sum(amount) > 0 ORDER BY ALL;
