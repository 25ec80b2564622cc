-- What charts that add up over time show: how much, for each bar where there is anything.
SELECT chart, series, stretch, begin_ms + bar * bar_ms AS left_ms, begin_ms + (bar + 1) * bar_ms AS right_ms,
    sum(amount) AS amount
FROM (
    SELECT a.*, p.begin_ms, p.bar_ms, floor((m.ms - p.begin_ms) / p.bar_ms)::BIGINT AS bar
    FROM amounts a JOIN moments m USING (stretch, seq) JOIN spans p USING (stretch)
)
GROUP BY ALL HAVING sum(amount) > 0 ORDER BY ALL;
