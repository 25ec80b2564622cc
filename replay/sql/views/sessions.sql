-- sessions: one row for each connection of a process, from its opening to its end.
--
-- stretch, session   its key
-- process, pid     of the peer; `process` is the manager's number, which is not used again
-- end_observable   the host can tell when the process ends
-- opened_seq, opened_at_ns   when
-- instance, instance_name, rank   that it registered as; null: it only opened, or registered before the log
-- world_size, staging_bytes   that it declared
-- queries, hints   that it opened
-- closed_seq, closed_for, open_us   when and why it ended, and after how long
CREATE VIEW sessions AS
WITH
registered AS (
    SELECT stretch, session, arg_max(instance, fact) AS instance, arg_max(name, fact) AS instance_name,
        arg_max(rank, fact) AS rank, arg_max(world_size, fact) AS world_size,
        arg_max(staging_bytes, fact) AS staging_bytes
    FROM rank_registered GROUP BY ALL
),
closed AS (
    SELECT stretch, session, min(seq) AS closed_seq, arg_min(cause, fact) AS closed_for
    FROM session_closed GROUP BY ALL
),
queries AS (SELECT stretch, session, count(*) AS queries FROM query_opened GROUP BY ALL),
hints AS (
    SELECT stretch, session, count(*) AS hints FROM (
        SELECT stretch, session FROM hint_admitted
        UNION ALL SELECT stretch, session FROM hint_skipped
        UNION ALL SELECT stretch, session FROM hint_not_needed
    ) GROUP BY ALL
)
SELECT s.stretch, s.session, s.process, s.pid, s.end_observable, s.seq AS opened_seq, r.at_ns AS opened_at_ns,
    g.instance, g.instance_name, g.rank, g.world_size, g.staging_bytes, coalesce(q.queries, 0) AS queries,
    coalesce(h.hints, 0) AS hints, c.closed_seq, c.closed_for, (e.at_ns - r.at_ns) // 1000 AS open_us
FROM session_opened s
JOIN records r ON r.stretch = s.stretch AND r.seq = s.seq
LEFT JOIN registered g ON g.stretch = s.stretch AND g.session = s.session
LEFT JOIN closed c ON c.stretch = s.stretch AND c.session = s.session
LEFT JOIN queries q ON q.stretch = s.stretch AND q.session = s.session
LEFT JOIN hints h ON h.stretch = s.stretch AND h.session = s.session
LEFT JOIN records e ON e.stretch = s.stretch AND e.seq = c.closed_seq;
