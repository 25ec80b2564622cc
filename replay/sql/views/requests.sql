-- requests: one row for each attempt of a request of an engine, over all its hints and demands.
--
-- stretch, instance, request, attempt   its key
-- first_seq, first_at_ns   the first that the log tells of it
-- hints, hints_admitted    that were sent for it, and that were taken
-- hint_lead_us     from its first hint to its first demand
-- demands          that were opened for it; more than one where it was revised
-- asked, dram, peer, ssd, miss   what its last answered demand came to, in pages
-- waited           a demand of it waited for its budget
-- answered_us      from the opening of that demand to its answer
-- leases, syncs    that its demands got, and successful syncs of those
-- copied_bytes     that these reported
-- restored_us      from its first demand to its last successful sync
-- last_seq         the end of its last demand or hint; null: one has not ended
CREATE VIEW requests AS
WITH
moments AS (
    SELECT stretch, instance, request, attempt, seq AS first_seq, at_ns AS first_at_ns, ended_seq,
        operation IS NOT NULL AS is_open, 'hint' AS what, answer = 'admitted' AS admitted
    FROM hints
    UNION ALL
    SELECT stretch, instance, request, attempt, opened_seq, opened_at_ns, ended_seq, true, 'demand', NULL
    FROM queries
),
lives AS (
    SELECT stretch, instance, request, attempt, min(first_seq) AS first_seq, min(first_at_ns) AS first_at_ns,
        count(*) FILTER (what = 'hint') AS hints, count(*) FILTER (admitted) AS hints_admitted,
        min(first_at_ns) FILTER (what = 'hint') AS hinted_at_ns,
        count(*) FILTER (what = 'demand') AS demands,
        min(first_at_ns) FILTER (what = 'demand') AS demanded_at_ns,
        if(bool_or(is_open AND ended_seq IS NULL), NULL, max(coalesce(ended_seq, first_seq))) AS last_seq
    FROM moments GROUP BY ALL
),
answers AS (
    SELECT stretch, instance, request, attempt, bool_or(waited) AS waited,
        max_by((asked_pages, dram, peer, ssd, miss, answered_us), opened_seq)
            FILTER (answered_seq IS NOT NULL) AS told
    FROM queries GROUP BY ALL
),
leased AS (
    SELECT stretch, instance, request, attempt, count(*) AS leases, sum(synced)::BIGINT AS syncs,
        sum(copied_bytes)::BIGINT AS copied_bytes
    FROM leases GROUP BY ALL
),
synced AS (
    SELECT q.stretch, q.instance, q.request, q.attempt, max(s.at_ns) AS synced_at_ns
    FROM gpu_syncs s JOIN query_opened q USING (stretch, operation) GROUP BY ALL
)
SELECT l.stretch, l.instance, l.request, l.attempt, l.first_seq, l.first_at_ns, l.hints, l.hints_admitted,
    if(l.hinted_at_ns <= l.demanded_at_ns, (l.demanded_at_ns - l.hinted_at_ns) // 1000, NULL) AS hint_lead_us,
    l.demands, a.told[1] AS asked, a.told[2] AS dram, a.told[3] AS peer, a.told[4] AS ssd, a.told[5] AS miss,
    coalesce(a.waited, false) AS waited, a.told[6] AS answered_us, coalesce(x.leases, 0) AS leases,
    coalesce(x.syncs, 0) AS syncs, coalesce(x.copied_bytes, 0) AS copied_bytes,
    (s.synced_at_ns - l.demanded_at_ns) // 1000 AS restored_us, l.last_seq
FROM lives l
LEFT JOIN answers a USING (stretch, instance, request, attempt)
LEFT JOIN leased x USING (stretch, instance, request, attempt)
LEFT JOIN synced s USING (stretch, instance, request, attempt);
