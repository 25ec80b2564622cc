-- Every demand, hint and lease ends once, for the cause that it names: cancelled by such a command, revised
-- by a higher revision of its request, expired at its deadline or later, disconnected with its opener's
-- session, shut down, consumed with its lease, bypassed where it can never fit its budget, missed without a
-- lease. A hint is prepared when its own reads have ended, admitted when its request's demand is opened.
-- Nothing outlives what it depends on: its opener's session, the begun shutdown, the reads that it is for.
WITH
opened AS (
    SELECT stretch, seq, fact, operation, session, instance, request, attempt, revision, charge_bytes,
        deadline_ns, 'demand' AS kind
    FROM query_opened
    UNION ALL
    SELECT stretch, seq, fact, operation, session, instance, request, attempt, revision, charge_bytes,
        deadline_ns, 'warm'
    FROM hint_admitted
),
leases AS (
    SELECT l.stretch, l.lease, min(l.operation) AS operation, min(l.fact) AS fact, min(l.seq) AS seq,
        min(l.deadline_ns) AS deadline_ns
    FROM lease_granted l GROUP BY ALL
),
told AS (
    SELECT stretch, seq, fact, operation, "end"::VARCHAR AS ending, 'demand' AS kind FROM query_ended
    UNION ALL SELECT stretch, seq, fact, operation, "end"::VARCHAR, 'warm' FROM hint_ended
),
ended AS (
    SELECT t.*, row_number() OVER (PARTITION BY t.stretch, t.operation, t.kind ORDER BY t.fact) AS nth
    FROM told t
),
lease_told AS (
    SELECT stretch, seq, fact, lease, "end"::VARCHAR AS ending FROM lease_ended
),
shutdowns AS (SELECT stretch, min(fact) AS fact, min(seq) AS seq FROM shutdown_begun GROUP BY ALL),
successors AS (
    SELECT o.stretch, o.seq, o.instance, o.request, o.attempt, max(o.revision) AS revision,
        bool_or(o.kind = 'demand') AS is_demand
    FROM (
        SELECT stretch, seq, instance, request, attempt, revision, kind FROM opened
    ) o GROUP BY ALL
),
judged AS (
    SELECT e.*, o.request, o.fact AS opened_fact, r.cause, r.at_ns, o.deadline_ns, o.charge_bytes,
        l.fact AS leased_fact, lt.ending AS lease_ending, g.fact AS granted_fact,
        n.is_demand, n.revision > o.revision AS is_revised, c.fact AS closed_fact, x.fact AS shutdown_fact,
        least(f.query_budget_bytes, f.instance_query_budget_bytes) AS limit_bytes
    FROM ended e
    JOIN opened o USING (stretch, operation, kind)
    JOIN records r ON r.stretch = e.stretch AND r.seq = e.seq
    LEFT JOIN leases l ON l.stretch = e.stretch AND l.operation = e.operation AND l.fact < e.fact
    LEFT JOIN lease_told lt ON lt.stretch = e.stretch AND lt.lease = l.lease AND lt.seq = e.seq
    LEFT JOIN query_granted g ON g.stretch = e.stretch AND g.operation = e.operation AND g.fact < e.fact
    LEFT JOIN successors n ON n.stretch = e.stretch AND n.seq = e.seq AND n.instance = o.instance
        AND n.request = o.request AND n.attempt = o.attempt
    LEFT JOIN session_closed c ON c.stretch = e.stretch AND c.seq = e.seq AND c.session = o.session
    LEFT JOIN shutdowns x ON x.stretch = e.stretch
    LEFT JOIN config f ON f.stretch = e.stretch
    WHERE e.nth = 1
),
naming AS (
    SELECT stretch, seq, format('{} {} ends as {}, in a record of {}{}', if(kind = 'warm', 'hint', 'demand'),
        operation_name(operation), ending, cause,
            if(leased_fact IS NULL, '', format(' (its lease: {})', coalesce(lease_ending, 'goes on')))) AS why
    FROM judged
    WHERE NOT CASE
        WHEN kind = 'warm' THEN CASE ending
            WHEN 'prepared' THEN true
            WHEN 'cancelled' THEN cause IN ('CancelHint', 'CancelQuery')
            WHEN 'revised' THEN cause = 'WarmPrefix'
            WHEN 'expired' THEN at_ns >= deadline_ns
            WHEN 'disconnected' THEN closed_fact IS NOT NULL
            WHEN 'admitted' THEN coalesce(is_demand, false)
            WHEN 'shutdown' THEN shutdown_fact < fact
            ELSE false END
        ELSE CASE ending
            WHEN 'consumed' THEN lease_ending = 'consumed'
            WHEN 'cancelled' THEN cause = 'CancelQuery' AND coalesce(lease_ending, 'cancelled') = 'cancelled'
            WHEN 'revised' THEN coalesce(is_revised AND is_demand, false)
                AND coalesce(lease_ending, 'revised') = 'revised'
            WHEN 'expired' THEN leased_fact IS NULL AND at_ns >= deadline_ns
            WHEN 'lease_expired' THEN lease_ending = 'expired'
            WHEN 'disconnected' THEN closed_fact IS NOT NULL OR lease_ending = 'disconnected'
            WHEN 'bypassed' THEN leased_fact IS NULL AND granted_fact IS NULL
                AND charge_bytes > coalesce(limit_bytes, 0)
            WHEN 'missed' THEN leased_fact IS NULL AND granted_fact IS NOT NULL
            WHEN 'shutdown' THEN shutdown_fact < fact
            ELSE false END
        END IS TRUE
    UNION ALL
    SELECT stretch, seq,
        format('{} {} ends again ({})', if(kind = 'warm', 'hint', 'demand'), operation_name(operation),
            ending)
    FROM ended WHERE nth > 1
),
lease_judged AS (
    SELECT t.*, r.cause, r.at_ns, l.deadline_ns, q.ending AS query_ending, x.fact AS shutdown_fact,
        c.seq IS NOT NULL AS closes, p.seq IS NOT NULL AS releases
    FROM lease_told t JOIN leases l USING (stretch, lease)
    JOIN records r ON r.stretch = t.stretch AND r.seq = t.seq
    LEFT JOIN ended q ON q.stretch = t.stretch AND q.operation = l.operation AND q.kind = 'demand'
        AND q.nth = 1 AND q.seq <= t.seq
    LEFT JOIN shutdowns x ON x.stretch = t.stretch
    LEFT JOIN (SELECT DISTINCT stretch, seq FROM session_closed) c ON c.stretch = t.stretch AND c.seq = t.seq
    LEFT JOIN (SELECT DISTINCT stretch, seq FROM process_released) p ON p.stretch = t.stretch
        AND p.seq = t.seq
),
lease_naming AS (
    SELECT stretch, seq, format('lease {} ends as {}, in a record of {}, its demand {}', lease, ending, cause,
        coalesce('as ' || query_ending, 'goes on')) AS why
    FROM lease_judged
    WHERE NOT (query_ending IS NOT NULL AND CASE ending
        WHEN 'consumed' THEN cause IN ('ReportSync', 'ReleaseLease')
            AND query_ending IN ('consumed', 'disconnected')
        WHEN 'cancelled' THEN query_ending IN ('cancelled', 'disconnected') AND cause = 'CancelQuery'
        WHEN 'revised' THEN query_ending IN ('revised', 'disconnected') AND cause = 'SubmitQuery'
        WHEN 'expired' THEN query_ending IN ('lease_expired', 'disconnected') AND at_ns >= deadline_ns
        WHEN 'disconnected' THEN query_ending = 'disconnected' AND (closes OR releases)
        WHEN 'shutdown' THEN query_ending IN ('shutdown', 'disconnected') AND shutdown_fact < fact
        ELSE false END) IS TRUE
),
-- What an end must not be later than.
lives AS (
    SELECT o.*, e.seq AS ended_seq, e.fact AS ended_fact
    FROM opened o LEFT JOIN ended e
        ON e.stretch = o.stretch AND e.operation = o.operation AND e.kind = o.kind AND e.nth = 1
),
outliving AS (
    SELECT c.stretch, c.seq,
        format('session {} is closed, and {} of it goes on', c.session, operation_name(operation)) AS why
    FROM session_closed c JOIN lives v USING (stretch, session)
    WHERE v.fact < c.fact AND (v.ended_seq IS NULL OR v.ended_seq > c.seq)
    UNION ALL
    SELECT x.stretch, x.seq, format('the shutdown has begun, and {} goes on', operation_name(operation))
    FROM shutdowns x JOIN lives v USING (stretch)
    WHERE v.fact < x.fact AND (v.ended_seq IS NULL OR v.ended_seq > x.seq)
    UNION ALL
    SELECT l.stretch, l.seq,
        format('lease {} has ended, and demand {} goes on', l.lease, operation_name(g.operation))
    FROM lease_told l JOIN leases g USING (stretch, lease)
    JOIN lives v ON v.stretch = l.stretch AND v.operation = g.operation
    WHERE v.ended_seq IS NULL OR v.ended_seq > l.seq
    UNION ALL
    SELECT d.stretch, d.seq,
        format('the demand for {} is opened, and its hint {} goes on', d.request, operation_name(h.operation))
    FROM query_opened d JOIN lives h USING (stretch, instance, request, attempt)
    WHERE h.kind = 'warm' AND h.fact < d.fact AND (h.ended_seq IS NULL OR h.ended_seq > d.seq)
),
-- What a hint still wants: pages whose reads go on, and that no cut has let go of. Its own reads it queued.
reading AS (
    SELECT p.stretch, p.operation, n.read IS NOT NULL AS own, p.let_go_fact, r.over_fact,
        least(r.ended_seq, r.dropped_seq, p.let_go_seq) AS over_seq
    FROM query_pages p LEFT JOIN reads_queued n USING (stretch, operation, read)
    LEFT JOIN read_lives r USING (stretch, read)
    WHERE p.kind = 'warm'
),
hints AS (
    SELECT v.stretch, v.operation, v.ended_seq, any_value(e.ending) AS ending,
        count(*) FILTER (r.own AND r.let_go_fact >= v.ended_fact
            AND (r.over_fact IS NULL OR r.over_fact > v.ended_fact)) AS own_open,
        count(*) FILTER (r.own IS NOT NULL AND r.over_seq IS NULL) AS any_open,
        greatest(v.seq, max(r.over_seq)) AS done_seq
    FROM lives v LEFT JOIN reading r ON r.stretch = v.stretch AND r.operation = v.operation
    LEFT JOIN ended e ON e.stretch = v.stretch AND e.operation = v.operation AND e.kind = 'warm' AND e.nth = 1
    WHERE v.kind = 'warm' GROUP BY v.stretch, v.operation, v.seq, v.ended_seq, v.ended_fact
),
preparing AS (
    SELECT stretch, ended_seq AS seq,
        format('hint {} is prepared while {} of its reads go on', operation_name(operation), own_open) AS why
    FROM hints WHERE ending = 'prepared' AND own_open > 0
    UNION ALL
    SELECT stretch, done_seq,
        format('all reads of hint {} have ended, and it goes on', operation_name(operation))
    FROM hints WHERE any_open = 0 AND (ended_seq IS NULL OR ended_seq > done_seq)
)
FROM naming UNION ALL FROM lease_naming UNION ALL FROM outliving UNION ALL FROM preparing;
