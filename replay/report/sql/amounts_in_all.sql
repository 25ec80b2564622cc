-- The same, added up over the whole log.
SELECT chart, series, sum(amount) AS amount
FROM amounts GROUP BY ALL HAVING sum(amount) > 0 ORDER BY chart, amount DESC, series;
