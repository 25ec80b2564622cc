-- A ticket is used once and never revives: those of one session rise, whether they open a demand or a hint,
-- or are skipped. Nothing speaks of an operation before it is opened or after it has ended. Of one request
-- and attempt of an instance there is one demand and one hint at a time, and revisions rise.
WITH
opened AS (
    SELECT stretch, seq, fact, operation, instance, request, attempt, revision, 'demand' AS kind
    FROM query_opened
    UNION ALL
    SELECT stretch, seq, fact, operation, instance, request, attempt, revision, 'warm' FROM hint_admitted
),
tickets AS (
    SELECT stretch, seq, fact, operation FROM opened
    UNION ALL SELECT stretch, seq, fact, (session << 32) | ticket FROM hint_skipped
    UNION ALL SELECT stretch, seq, fact, (session << 32) | ticket FROM hint_not_needed
),
rising AS (
    SELECT stretch, seq,
        format('ticket {} is used after {}', operation_name(operation), operation_name(highest)) AS why
    FROM (
        SELECT *, max(operation) OVER (
            PARTITION BY stretch, operation >> 32 ORDER BY fact
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
        FROM tickets
    )
    WHERE operation <= highest
),
ended AS (
    SELECT stretch, operation, min(fact) AS ended_fact, min(seq) AS ended_seq
    FROM (
        SELECT stretch, operation, fact, seq FROM query_ended
        UNION ALL SELECT stretch, operation, fact, seq FROM hint_ended
    )
    GROUP BY ALL
),
lives AS (
    SELECT o.*, e.ended_fact, e.ended_seq FROM opened o LEFT JOIN ended e USING (stretch, operation)
),
spoken AS (
    SELECT stretch, seq, fact, operation, 'waits' AS what FROM query_waiting
    UNION ALL SELECT stretch, seq, fact, operation, 'is granted' FROM query_granted
    UNION ALL SELECT stretch, min(seq), fact, operation, 'queues reads' FROM reads_queued
    GROUP BY stretch, fact, operation
    UNION ALL SELECT stretch, min(seq), fact, operation, 'joins reads' FROM reads_joined
    GROUP BY stretch, fact, operation
    UNION ALL SELECT stretch, seq, fact, operation, 'is cut' FROM query_cut
    UNION ALL SELECT stretch, seq, fact, operation, 'is settled' FROM decision_settled
    UNION ALL SELECT stretch, seq, fact, operation, 'gets a lease' FROM lease_granted
    UNION ALL SELECT stretch, seq, fact, operation, 'ends' FROM query_ended
    UNION ALL SELECT stretch, seq, fact, operation, 'ends' FROM hint_ended
),
speaking AS (
    SELECT p.stretch, p.seq, format('{} {}, and {}', operation_name(p.operation), p.what,
        CASE WHEN o.fact IS NULL OR o.fact > p.fact THEN 'was not opened' ELSE 'has ended' END) AS why
    FROM spoken p JOIN stretches s USING (stretch)
    LEFT JOIN (SELECT stretch, operation, min(fact) AS fact FROM opened
        GROUP BY ALL) o USING (stretch, operation)
    LEFT JOIN ended e USING (stretch, operation)
    WHERE (s.whole AND o.fact IS NULL) OR o.fact > p.fact OR e.ended_fact < p.fact
),
successions AS (
    SELECT *, lag(operation) OVER story AS operation_before, lag(revision) OVER story AS revision_before,
        coalesce(lag(ended_fact) OVER story, 9223372036854775807) AS ended_before,
        coalesce(lag(ended_seq) OVER story, 9223372036854775807) AS ended_seq_before
    FROM lives
    WINDOW story AS (PARTITION BY stretch, kind, instance, request, attempt ORDER BY fact)
),
one_each AS (
    SELECT stretch, seq, format('{} is opened for request {} while {} is open for it',
        operation_name(operation), request, operation_name(operation_before)) AS why
    FROM successions WHERE operation_before IS NOT NULL AND ended_before > fact
    UNION ALL
    SELECT stretch, seq,
        format('revision {} of request {} replaces revision {}', revision, request, revision_before)
    FROM successions WHERE ended_seq_before = seq AND ended_before < fact AND revision <= revision_before
)
FROM rising UNION ALL FROM speaking UNION ALL FROM one_each;
