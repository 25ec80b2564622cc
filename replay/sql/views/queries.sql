-- queries: one row for each demand that was opened in this stretch of the log.
--
-- stretch, operation   its key
-- name             as in the timeline: session and ticket of its opener
-- instance, session, request, attempt, revision   whose it is
-- asked_pages, charge_bytes, deadline_ns   what it asks for, may cost, and until when
-- opened_seq, opened_at_ns   when it was opened
-- waited           its budget was full, so that it waited for its grant
-- granted_seq      when its bytes were reserved; null: they were not
-- hits             DRAM pages that it held from then on
-- reads, joined    pages read for it, and of these the ones that others had started
-- cuts             how often its boundary moved back
-- answered_seq, answered_us   when it was settled, and how long after its opening
-- dram, peer, ssd, miss   the decision, in pages; their sum is what it asked for
-- lease            that it was answered with
-- ended_seq, ended   when it left the table, and why
CREATE VIEW queries AS
WITH
waits AS (SELECT DISTINCT stretch, operation FROM query_waiting),
grants AS (SELECT stretch, operation, min(seq) AS granted_seq FROM query_granted GROUP BY ALL),
cuts AS (SELECT stretch, operation, count(*) AS cuts FROM query_cut GROUP BY ALL),
used AS (
    SELECT q.stretch, q.operation, count(*) FILTER (q.tier = 'dram') AS hits,
        count(*) FILTER (q.tier = 'ssd') AS reads,
        count(*) FILTER (q.tier = 'ssd' AND r.queued_fact IS DISTINCT FROM q.fact) AS joined
    FROM query_pages q LEFT JOIN read_lives r USING (stretch, read)
    WHERE q.kind = 'demand' GROUP BY ALL
),
settled AS (
    SELECT stretch, operation, min(seq) AS answered_seq, arg_min(dram, fact) AS dram,
        arg_min(peer, fact) AS peer, arg_min(ssd, fact) AS ssd, arg_min(miss, fact) AS miss
    FROM decision_settled GROUP BY ALL
),
ends AS (
    SELECT stretch, operation, min(seq) AS ended_seq, arg_min("end", fact) AS ended
    FROM query_ended GROUP BY ALL
)
SELECT q.stretch, q.operation, o.name, q.instance, q.session, q.request, q.attempt, q.revision, q.asked_pages,
    q.charge_bytes, q.deadline_ns, q.seq AS opened_seq, r.at_ns AS opened_at_ns,
    w.operation IS NOT NULL AS waited, g.granted_seq, coalesce(u.hits, 0) AS hits, coalesce(u.reads, 0) AS reads,
    coalesce(u.joined, 0) AS joined, coalesce(c.cuts, 0) AS cuts, s.answered_seq,
    (a.at_ns - r.at_ns) // 1000 AS answered_us, s.dram, s.peer, s.ssd, s.miss, o.lease, e.ended_seq, e.ended
FROM query_opened q
JOIN operations o ON o.stretch = q.stretch AND o.operation = q.operation AND o.kind = 'demand'
JOIN records r ON r.stretch = q.stretch AND r.seq = q.seq
LEFT JOIN waits w ON w.stretch = q.stretch AND w.operation = q.operation
LEFT JOIN grants g ON g.stretch = q.stretch AND g.operation = q.operation
LEFT JOIN used u ON u.stretch = q.stretch AND u.operation = q.operation
LEFT JOIN cuts c ON c.stretch = q.stretch AND c.operation = q.operation
LEFT JOIN settled s ON s.stretch = q.stretch AND s.operation = q.operation
LEFT JOIN records a ON a.stretch = s.stretch AND a.seq = s.answered_seq
LEFT JOIN ends e ON e.stretch = q.stretch AND e.operation = q.operation;
