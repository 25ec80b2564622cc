-- Never are more operations open than the configuration allows: of one session and in all, hints among them
-- and all together. Sessions have their limit, too.
WITH
moves AS (
    SELECT stretch, seq, operation, 1 AS opened, 0 AS hinted FROM query_opened
    UNION ALL SELECT stretch, seq, operation, 1, 1 FROM hint_admitted
    UNION ALL SELECT stretch, seq, operation, -1, 0 FROM query_ended
    UNION ALL SELECT stretch, seq, operation, -1, -1 FROM hint_ended
),
by_session AS (
    SELECT stretch, seq, operation >> 32 AS session, sum(opened) AS opened, sum(hinted) AS hinted
    FROM moves GROUP BY ALL
),
of_sessions AS (
    SELECT stretch, seq, session, sum(opened) OVER running AS operations, sum(hinted) OVER running AS hints
    FROM by_session WINDOW running AS (PARTITION BY stretch, session ORDER BY seq)
),
of_all AS (
    SELECT stretch, seq, sum(sum(opened)) OVER running AS operations, sum(sum(hinted)) OVER running AS hints
    FROM by_session GROUP BY stretch, seq WINDOW running AS (PARTITION BY stretch ORDER BY seq)
),
of_sessions_open AS (
    SELECT stretch, seq, sum(sum(opened)) OVER (PARTITION BY stretch ORDER BY seq) AS sessions
    FROM (
        SELECT stretch, seq, 1 AS opened FROM session_opened
        UNION ALL SELECT stretch, seq, -1 FROM session_closed
    )
    GROUP BY stretch, seq
),
limits AS (SELECT * EXCLUDE (seq, fact) FROM config),
counts AS (
    SELECT stretch, seq, format('operations of session {}', session) AS what, operations AS open_count,
        operations_per_session_max AS limit_count
    FROM of_sessions JOIN limits USING (stretch)
    UNION ALL
    SELECT stretch, seq, format('hints of session {}', session), hints, hints_per_session_max
    FROM of_sessions JOIN limits USING (stretch)
    UNION ALL
    SELECT stretch, seq, 'operations', operations, operations_max FROM of_all JOIN limits USING (stretch)
    UNION ALL
    SELECT stretch, seq, 'hints', hints, hints_max FROM of_all JOIN limits USING (stretch)
    UNION ALL
    SELECT stretch, seq, 'sessions', sessions, sessions_max FROM of_sessions_open JOIN limits USING (stretch)
)
SELECT stretch, seq, format('{} {} are open, the limit is {}', open_count, what, limit_count) AS why
FROM counts WHERE open_count > limit_count;
