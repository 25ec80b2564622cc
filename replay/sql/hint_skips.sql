-- A hint is skipped for the first reason that applies, and admitted when none does: oversized (larger than
-- the speculative share), operations (the session's or all, hints' or any), foreground (a demand has bytes
-- reserved or waits), bytes (other hints hold the share). It says truly what was in the way.
WITH
hints AS (
    SELECT stretch, seq, fact, session, instance, operation, charge_bytes, 'admitted' AS verdict,
        0 AS reserved, 0 AS limit_told
    FROM hint_admitted
    UNION ALL
    SELECT stretch, seq, fact, session, instance, (session << 32) | ticket, charge_bytes, reason::VARCHAR,
        reserved, "limit"
    FROM hint_skipped
),
waits AS (SELECT DISTINCT stretch, operation FROM query_waiting),
moves AS (
    SELECT stretch, fact, operation, 1 AS opened, 0 AS hinted, 0 AS waiting FROM query_opened
    UNION ALL SELECT stretch, fact, operation, 1, 1, 0 FROM hint_admitted
    UNION ALL SELECT stretch, fact, operation, -1, -1, 0 FROM hint_ended
    UNION ALL SELECT stretch, fact, operation, 0, 0, 1 FROM query_waiting
    UNION ALL SELECT stretch, fact, operation, 0, 0, -1 FROM query_granted SEMI
    JOIN waits USING (stretch, operation)
    UNION ALL
    SELECT e.stretch, e.fact, e.operation, -1, 0, if(w.operation IS NOT NULL AND g.fact IS NULL, -1, 0)
    FROM query_ended e LEFT JOIN waits w USING (stretch, operation)
    LEFT JOIN query_granted g USING (stretch, operation)
),
-- DuckDB adds doubles up in half the time, and counts are exact in them.
counts AS (
    SELECT stretch, fact, session,
        (sum(opened) OVER of_all)::BIGINT AS operations, (sum(hinted) OVER of_all)::BIGINT AS hints,
        (sum(waiting) OVER of_all)::BIGINT AS waiting,
        (sum(opened) OVER of_session)::BIGINT AS session_operations,
        (sum(hinted) OVER of_session)::BIGINT AS session_hints
    FROM (
        SELECT stretch, fact, operation >> 32 AS session, opened::DOUBLE AS opened, hinted::DOUBLE AS hinted,
            waiting::DOUBLE AS waiting
        FROM moves
    )
    WINDOW of_all AS (PARTITION BY stretch ORDER BY fact ROWS UNBOUNDED PRECEDING),
        of_session AS (PARTITION BY stretch, session ORDER BY fact ROWS UNBOUNDED PRECEDING)
),
seen AS (
    SELECT h.*, coalesce(n.operations, 0) AS operations, coalesce(n.hints, 0) AS hints,
        coalesce(n.waiting, 0) AS waiting
    FROM hints h ASOF LEFT JOIN counts n ON n.stretch = h.stretch AND n.fact < h.fact
),
seen_of_session AS (
    SELECT h.*, coalesce(n.session_operations, 0) AS session_operations,
        coalesce(n.session_hints, 0) AS session_hints
    FROM seen h ASOF LEFT JOIN counts n
        ON n.stretch = h.stretch AND n.session = h.session AND n.fact < h.fact
),
seen_bytes AS (
    SELECT h.*, coalesce(l.all_bytes - l.warm_bytes, 0) AS demand_bytes,
        coalesce(l.warm_bytes, 0) AS warm_bytes
    FROM seen_of_session h ASOF LEFT JOIN reservation_levels l
        ON l.stretch = h.stretch AND l.fact < h.fact
),
seen_of_instance AS (
    SELECT h.*, coalesce(l.instance_warm_bytes, 0) AS own_warm_bytes
    FROM seen_bytes h ASOF LEFT JOIN reservation_levels l
        ON l.stretch = h.stretch AND l.instance = h.instance AND l.fact < h.fact
),
judged AS MATERIALIZED (
    SELECT h.*, c.* EXCLUDE (stretch, seq, fact),
        c.query_budget_bytes // c.speculative_divisor AS share_bytes,
        c.instance_query_budget_bytes // c.speculative_divisor AS own_share_bytes,
        CASE
            WHEN charge_bytes > least(share_bytes, own_share_bytes) THEN 'oversized'
            WHEN session_operations >= operations_per_session_max OR operations >= operations_max
                OR session_hints >= hints_per_session_max OR hints >= hints_max THEN 'operations'
            WHEN demand_bytes > 0 OR waiting > 0 THEN 'foreground'
            WHEN warm_bytes + charge_bytes > share_bytes
                OR own_warm_bytes + charge_bytes > own_share_bytes THEN 'bytes'
            ELSE 'admitted' END AS expected
    FROM seen_of_instance h JOIN config c USING (stretch)
),
reasons AS (
    SELECT stretch, seq, format('hint {} for {} bytes: {}, it should be {} (hints have {} bytes reserved,'
        ' demands {}, {} wait, {} operations are open)', operation_name(operation), charge_bytes, verdict,
        expected, warm_bytes, demand_bytes, waiting, operations) AS why
    FROM judged WHERE verdict <> expected
),
told AS (
    SELECT stretch, seq, format('hint {} is skipped ({}) because {} met {}, which is not so',
        operation_name(operation), verdict, reserved, limit_told) AS why
    FROM judged
    WHERE verdict = expected AND NOT CASE verdict
        WHEN 'oversized' THEN reserved = charge_bytes AND limit_told IN (share_bytes, own_share_bytes)
        WHEN 'operations' THEN (reserved = operations AND limit_told = operations_max)
            OR (reserved = hints AND limit_told = hints_max)
            OR (reserved = session_operations AND limit_told = operations_per_session_max)
            OR (reserved = session_hints AND limit_told = hints_per_session_max)
        WHEN 'foreground' THEN reserved = demand_bytes AND limit_told = 0
        WHEN 'bytes' THEN (reserved = warm_bytes AND limit_told = share_bytes)
            OR (reserved = own_warm_bytes AND limit_told = own_share_bytes)
        ELSE true END
)
FROM reasons UNION ALL FROM told;
