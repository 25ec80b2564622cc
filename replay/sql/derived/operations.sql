-- operations: one row for each demand and each hint, from its opening to its end.
--
-- name        as in the timeline: session and ticket of its opener
-- opened_*    null: it was opened before this stretch of the log begins
-- known       its story can be told from the log alone
-- lease       the operation was answered with hits; the lease took over its pages
-- let_go_*    from here on it owns no page: its lease was released, or it ended without one
CREATE TABLE operations AS
WITH
opened AS (
    SELECT stretch, operation, 'demand' AS kind, fact, seq, asked_pages, request FROM query_opened
    UNION ALL
    SELECT stretch, operation, 'warm', fact, seq, asked_pages, request FROM hint_admitted
),
seen AS (
    SELECT stretch, operation, kind FROM opened
    UNION SELECT stretch, operation, 'demand' FROM query_granted
    UNION SELECT stretch, operation, 'demand' FROM decision_settled
    UNION SELECT stretch, operation, 'demand' FROM lease_granted
    UNION SELECT stretch, operation, 'demand' FROM query_ended
    UNION SELECT stretch, operation, 'warm' FROM hint_ended
),
openings AS (
    SELECT stretch, operation, kind, min(fact) AS opened_fact, min(seq) AS opened_seq,
        arg_min(asked_pages, fact) AS asked_pages, arg_min(request, fact) AS request
    FROM opened GROUP BY ALL
),
leases AS (
    SELECT stretch, operation, min(lease) AS lease, min(fact) AS leased_fact, min(seq) AS leased_seq
    FROM lease_granted GROUP BY ALL
),
releases AS (
    SELECT stretch, lease, min(fact) AS fact, min(seq) AS seq FROM lease_released GROUP BY ALL
),
ends AS (
    SELECT stretch, operation, 'demand' AS kind, min(fact) AS ended_fact, min(seq) AS ended_seq
    FROM query_ended GROUP BY ALL
    UNION ALL
    SELECT stretch, operation, 'warm', min(fact), min(seq) FROM hint_ended GROUP BY ALL
)
SELECT
    seen.stretch, seen.operation, seen.kind,
    format('{}.{}', seen.operation >> 32, seen.operation & 4294967295) AS name,
    openings.request, openings.asked_pages, openings.opened_fact, openings.opened_seq,
    stretches.whole OR openings.opened_fact IS NOT NULL AS known,
    leases.lease, leases.leased_fact, leases.leased_seq,
    ends.ended_fact, ends.ended_seq,
    if(leases.lease IS NULL, ends.ended_fact, releases.fact) AS let_go_fact,
    if(leases.lease IS NULL, ends.ended_seq, releases.seq) AS let_go_seq
FROM seen
JOIN stretches USING (stretch)
LEFT JOIN openings USING (stretch, operation, kind)
LEFT JOIN leases
    ON leases.stretch = seen.stretch AND leases.operation = seen.operation AND seen.kind = 'demand'
LEFT JOIN releases ON releases.stretch = seen.stretch AND releases.lease = leases.lease
LEFT JOIN ends
    ON ends.stretch = seen.stretch AND ends.operation = seen.operation AND ends.kind = seen.kind;
