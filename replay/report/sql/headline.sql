-- The log in one row.
SELECT
    (SELECT count(*) FROM records) AS records,
    (SELECT count(DISTINCT (stretch, request)) FROM query_opened) AS requests,
    (SELECT count(*) FROM asked) AS queries,
    (SELECT count(*) FROM asked WHERE wait_ms IS NOT NULL) AS waited,
    (SELECT count(*) FROM asked WHERE lease IS NOT NULL) AS hits,
    (SELECT count(*) FROM asked WHERE answer_ms IS NULL) AS unanswered,
    (SELECT quantile_cont(answer_ms - opened_ms, 0.5) FROM asked) AS answer_p50_ms,
    (SELECT quantile_cont(answer_ms - opened_ms, 0.95) FROM asked) AS answer_p95_ms,
    (SELECT quantile_cont(sync_ms - opened_ms, 0.5) FROM asked) AS restored_p50_ms,
    (SELECT quantile_cont(sync_ms - opened_ms, 0.95) FROM asked) AS restored_p95_ms,
    (SELECT quantile_cont(used_ms - queued_ms, 0.5) FROM asked) AS first_use_p50_ms,
    (SELECT quantile_cont(used_ms - queued_ms, 0.95) FROM asked) AS first_use_p95_ms,
    (SELECT quantile_cont(wait_end_ms - wait_ms, 0.95) FROM asked) AS wait_p95_ms,
    (SELECT quantile_cont(elapsed_us, 0.5) / 1000 FROM reads_landed) AS read_p50_ms,
    (SELECT quantile_cont(elapsed_us, 0.95) / 1000 FROM reads_landed) AS read_p95_ms,
    (SELECT count(*) FROM reads_landed) AS reads;
