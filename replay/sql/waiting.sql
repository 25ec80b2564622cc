-- A demand waits only because its budget is full or others wait before it, and says truly what was reserved.
-- Waiting demands are granted in the order in which they were opened: those of one instance among
-- themselves, and nobody passes one that waits for the global budget. The first in line is granted in the
-- record in which bytes enough come free, not later.
--
-- What a demand would be charged for pages that others pay for already is not told: with charge = shared only
-- the order among the demands of an instance is judged, and what was reserved.
WITH
waits AS (
    SELECT stretch, operation, min(fact) AS fact, min(seq) AS seq FROM query_waiting GROUP BY ALL
),
grants AS (SELECT stretch, operation, min(fact) AS fact, min(seq) AS seq FROM query_granted GROUP BY ALL),
ends AS (SELECT stretch, operation, min(fact) AS fact, min(seq) AS seq FROM query_ended GROUP BY ALL),
line AS (
    SELECT o.stretch, o.operation, o.instance, o.fact, o.charge_bytes, w.fact AS waits_fact, w.seq AS waits_seq,
        g.fact AS granted_fact, g.seq AS granted_seq, least(g.fact, e.fact, 9223372036854775807) AS left_fact,
        least(g.seq, e.seq, 9223372036854775807) AS left_seq
    FROM query_opened o LEFT JOIN waits w USING (stretch, operation)
    LEFT JOIN grants g USING (stretch, operation) LEFT JOIN ends e USING (stretch, operation)
),
own_order AS (
    SELECT stretch, granted_seq AS seq,
        format('{} is granted while an earlier demand of its instance waits',
            operation_name(operation)) AS why
    FROM (
        SELECT *, max(if(waits_fact IS NULL, 0, left_fact)) OVER (
            PARTITION BY stretch, instance ORDER BY fact
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS waiting_fact
        FROM line
    )
    WHERE granted_fact < waiting_fact
),
-- The first in line, from the moment when all before it have left; there is one at most.
heads AS (
    SELECT stretch, operation, instance, charge_bytes, left_fact, left_seq,
        greatest(waits_fact, before_fact) AS fact, greatest(waits_seq, before_seq) AS seq
    FROM (
        SELECT *, coalesce(max(left_fact) OVER ahead, 0) AS before_fact,
            coalesce(max(left_seq) OVER ahead, 0) AS before_seq
        FROM line WHERE waits_fact IS NOT NULL
        WINDOW ahead AS (
            PARTITION BY stretch ORDER BY fact ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    )
    WHERE before_fact < left_fact
),
passing AS (
    SELECT g.stretch, g.seq, g.fact, g.operation, h.operation AS head, h.instance, h.charge_bytes
    FROM grants g ASOF JOIN heads h ON h.stretch = g.stretch AND h.fact < g.fact
    WHERE h.left_fact > g.fact
),
-- Only who waits for its own instance's budget may be passed by other instances.
any_order AS (
    SELECT p.stretch, p.seq, format('{} is granted, and passes {}, which waits for the global budget',
        operation_name(p.operation), operation_name(p.head)) AS why
    FROM passing p JOIN config c USING (stretch)
    ASOF LEFT JOIN reservation_levels i
        ON i.stretch = p.stretch AND i.instance = p.instance AND i.fact < p.fact
    WHERE c.charge = 'owner'
        AND coalesce(i.instance_bytes, 0) + p.charge_bytes <= c.instance_query_budget_bytes
),
-- What was reserved when a demand began to wait.
begun AS (
    SELECT w.*, o.instance, o.charge_bytes, coalesce(a.all_bytes, 0) AS all_bytes
    FROM query_waiting w JOIN query_opened o USING (stretch, operation)
    ASOF LEFT JOIN reservation_levels a ON a.stretch = w.stretch AND a.fact < w.fact
),
told AS (
    SELECT b.*, coalesce(i.instance_bytes, 0) AS instance_bytes,
        c.query_budget_bytes, c.instance_query_budget_bytes, c.charge
    FROM begun b JOIN config c USING (stretch)
    ASOF LEFT JOIN reservation_levels i
        ON i.stretch = b.stretch AND i.instance = b.instance AND i.fact < b.fact
),
telling AS (
    SELECT stretch, seq, format(
        '{} waits for {}, where {} of {} bytes are reserved; in all it is {} of {}, by its instance {} of {}',
        operation_name(operation), if(by_instance, 'its instance''s budget', 'the global budget'),
        reserved_bytes, limit_bytes, all_bytes, query_budget_bytes,
        instance_bytes, instance_query_budget_bytes) AS why
    FROM told
    WHERE reserved_bytes <> if(by_instance, instance_bytes, all_bytes)
        OR limit_bytes <> if(by_instance, instance_query_budget_bytes, query_budget_bytes)
        OR (charge = 'owner'
            AND by_instance <> (instance_bytes + charge_bytes > instance_query_budget_bytes))
),
-- The head of the line and the bytes reserved, at the end of each record that changes either.
moves AS (
    SELECT stretch, fact, seq, max(all_bytes) AS all_bytes, max(head) AS head
    FROM (
        SELECT stretch, fact, seq, all_bytes, NULL::BIGINT AS head FROM reservation_levels
        UNION ALL SELECT stretch, fact, seq, NULL, operation FROM heads
        UNION ALL SELECT stretch, left_fact, left_seq, NULL, 0 FROM heads WHERE left_fact < 9223372036854775807
    )
    GROUP BY ALL
),
fronts AS (
    SELECT stretch, seq, fact, last_value(all_bytes IGNORE NULLS) OVER story AS all_bytes,
        last_value(head IGNORE NULLS) OVER story AS head
    FROM moves
    WINDOW story AS (PARTITION BY stretch ORDER BY fact ROWS UNBOUNDED PRECEDING)
    QUALIFY lead(seq) OVER (PARTITION BY stretch ORDER BY fact) IS DISTINCT FROM seq
),
stuck AS (
    SELECT f.stretch, f.seq, f.fact, h.operation, h.instance, h.charge_bytes,
        coalesce(f.all_bytes, 0) AS all_bytes
    FROM fronts f JOIN heads h ON h.stretch = f.stretch AND h.operation = f.head
),
granting AS (
    SELECT k.stretch, k.seq, format(
        '{} is first in line for {} bytes and not granted; reserved are {} of {}, by its instance {} of {}',
        operation_name(k.operation), k.charge_bytes, k.all_bytes, c.query_budget_bytes,
        coalesce(i.instance_bytes, 0), c.instance_query_budget_bytes) AS why
    FROM stuck k JOIN config c USING (stretch)
    ASOF LEFT JOIN reservation_levels i
        ON i.stretch = k.stretch AND i.instance = k.instance AND i.fact <= k.fact
    WHERE c.charge = 'owner' AND k.all_bytes + k.charge_bytes <= c.query_budget_bytes
        AND coalesce(i.instance_bytes, 0) + k.charge_bytes <= c.instance_query_budget_bytes
)
FROM own_order UNION ALL FROM any_order UNION ALL FROM telling UNION ALL FROM granting;
