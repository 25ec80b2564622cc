-- What is reserved is what is needed. An operation is opened for the footprint of every page that it names,
-- and once it is answered or over it pays only for its lease's pages and for its own reads that the device
-- still has; when it needs nothing any more its reservation ends, in that record. With charge = shared it
-- stands in line for these pages instead, and has reserved those that it is first in line for.
--
-- A read is paid by the earliest operation that still wanted it when it was submitted, whoever else waits.
WITH
opened AS (
    SELECT stretch, seq, fact, operation, instance, charge_bytes, 'demand' AS kind FROM query_opened
    UNION ALL SELECT stretch, seq, fact, operation, instance, charge_bytes, 'warm' FROM hint_admitted
),
footprints AS (
    SELECT stretch, instance, group_id, any_value(footprint_bytes) AS footprint_bytes
    FROM instance_sealed_groups GROUP BY ALL
),
parts AS (
    SELECT o.stretch, o.seq, o.fact, o.operation, p.part, p.trailing_pages, p.asked_pages, f.footprint_bytes
    FROM opened o
    JOIN (FROM query_opened_parts UNION ALL FROM hint_admitted_parts) p USING (stretch, fact, operation)
    LEFT JOIN footprints f ON f.stretch = o.stretch AND f.instance = o.instance AND f.group_id = p.group_id
),
asked AS (
    SELECT stretch, fact, sum(asked_pages * footprint_bytes) AS asked_bytes,
        bool_or(trailing_pages > 0) AS is_windowed, count(*) = count(footprint_bytes) AS is_sized
    FROM parts GROUP BY ALL
),
-- Of a trailing part more hashes are named, and paid for, than pages are needed: how many is not told.
asking AS (
    SELECT o.stretch, o.seq, format('{} asks for pages of {} bytes, and is opened for {}',
        operation_name(operation), asked_bytes, charge_bytes) AS why
    FROM opened o JOIN asked a USING (stretch, fact) JOIN config c USING (stretch)
    WHERE a.is_sized
        AND ((charge_bytes > asked_bytes AND NOT is_windowed)
            OR (charge_bytes < asked_bytes
                AND NOT if(kind = 'warm', c.charge = 'shared', c.demand_prefix_cut)))
),
granting AS (
    SELECT g.stretch, g.seq, format('{} was opened for {} bytes, and is granted {}',
        operation_name(operation), o.charge_bytes, g.charge_bytes) AS why
    FROM query_granted g JOIN query_opened o USING (stretch, operation) JOIN config c USING (stretch)
    WHERE if(c.charge = 'shared', g.charge_bytes > o.charge_bytes, g.charge_bytes <> o.charge_bytes)
),
-- What operations that are answered or over still need: reads of their own, and leases.
payers AS (
    SELECT r.stretch, r.read, arg_min(q.operation, q.fact) AS operation,
        bool_and(q.known) AND bool_and(r.queued_fact IS NOT NULL) AS known
    FROM read_lives r JOIN query_pages q USING (stretch, read)
    WHERE q.fact < r.submitted_fact AND (q.let_go_fact IS NULL OR q.let_go_fact > r.submitted_fact)
    GROUP BY ALL
),
own_reads AS (
    SELECT p.stretch, p.operation, p.known, r.submitted_fact AS fact, r.submitted_seq AS seq,
        r.ended_fact, r.ended_seq, g.footprint_bytes
    FROM payers p JOIN read_lives r USING (stretch, read) JOIN generation_lives g USING (stretch, generation)
),
reaches AS (
    SELECT r.stretch, r.operation, r.part, arg_max(r.reach, r.fact) AS reach
    FROM (FROM query_granted_reach UNION ALL FROM query_cut_reach) r
    JOIN lease_granted l USING (stretch, operation)
    WHERE r.fact < l.fact GROUP BY ALL
),
lease_sizes AS (
    SELECT stretch, operation, count(*) = count(footprint_bytes) AS is_sized,
        sum(if(trailing_pages = 0, reach, least(reach, trailing_pages)) * footprint_bytes) AS bytes
    FROM reaches JOIN parts USING (stretch, operation, part) GROUP BY ALL
),
leases AS (SELECT l.*, z.bytes FROM lease_granted l JOIN lease_sizes z USING (stretch, operation)),
-- Part of what these need was told before the stretch begins.
strangers AS (
    SELECT stretch, operation FROM own_reads WHERE NOT known
    UNION SELECT stretch, operation FROM lease_sizes WHERE NOT is_sized
),
moves AS (
    SELECT stretch, operation, fact, seq, 0 AS needed, 0 AS claimed, bytes AS reserved,
        CASE WHEN what IN ('granted', 'admitted') THEN 1 WHEN what = 'ended' THEN -1 ELSE 0 END AS opening,
        if(what = 'leased', 1, 0) AS settling
    FROM reservation_changes
    UNION ALL SELECT stretch, operation, fact, seq, 0, 0, NULL, 0, 1 FROM query_ended
    UNION ALL SELECT stretch, operation, fact, seq, 0, 0, NULL, 0, 1 FROM hint_ended
    UNION ALL SELECT stretch, operation, fact, seq, bytes, 0, NULL, 0, 0 FROM leases
    UNION ALL
    SELECT l.stretch, l.operation, r.fact, r.seq, -l.bytes, 0, NULL, 0, 0
    FROM leases l JOIN lease_released r USING (stretch, lease)
    UNION ALL SELECT stretch, operation, fact, seq, footprint_bytes, 0, NULL, 0, 0 FROM own_reads
    UNION ALL
    SELECT stretch, operation, ended_fact, ended_seq, -footprint_bytes, 0, NULL, 0, 0
    FROM own_reads WHERE ended_fact IS NOT NULL
    UNION ALL SELECT stretch, operation, fact, seq, 0, footprint_bytes, NULL, 0, 0 FROM pages_claimed
    UNION ALL
    SELECT u.stretch, u.operation, u.fact, u.seq, 0, -c.footprint_bytes, NULL, 0, 0
    FROM pages_unclaimed u JOIN pages_claimed c USING (stretch, operation, page)
),
by_record AS (
    SELECT stretch, operation, seq, sum(needed)::BIGINT AS needed, sum(claimed)::BIGINT AS claimed,
        arg_max(reserved, fact) AS reserved, sum(opening) AS opening, max(opening) AS granted,
        sum(settling) AS settling
    FROM moves GROUP BY ALL
),
-- At the end of each record that changes anything of an operation.
states AS MATERIALIZED (
    SELECT stretch, operation, seq, sum(needed) OVER story AS need_bytes,
        sum(claimed) OVER story AS line_bytes,
        last_value(reserved IGNORE NULLS) OVER story AS reserved_bytes,
        sum(opening) OVER story > 0 AS is_open, max(granted) OVER story > 0 AS was_granted,
        sum(settling) OVER story > 0 AS is_settled
    FROM by_record WINDOW story AS (PARTITION BY stretch, operation ORDER BY seq)
),
-- Those of which the log tells all; who never was granted reserves nothing.
judged AS (
    SELECT t.* FROM states t SEMI JOIN opened USING (stretch, operation)
    ANTI JOIN strangers USING (stretch, operation)
    WHERE is_settled AND was_granted
),
needing AS (
    SELECT j.stretch, j.seq, format('{} needs {} bytes, and {}', operation_name(operation), need_bytes, CASE
        WHEN NOT is_open THEN 'its reservation has ended'
        WHEN need_bytes = 0 THEN 'its reservation has not ended'
        WHEN c.charge = 'shared' THEN format('stands in line for {}', line_bytes)
        ELSE format('has {} reserved', reserved_bytes) END) AS why
    FROM judged j LEFT JOIN config c USING (stretch)
    WHERE is_open <> (need_bytes > 0)
        OR (c.charge = 'owner' AND is_open AND reserved_bytes <> need_bytes)
        OR (c.charge = 'shared' AND is_open AND line_bytes <> need_bytes)
),
-- Lines: one for each page, of an instance's demands or of its hints. The next pays when all before it left.
claims AS (
    SELECT c.stretch, c.operation, c.page, c.footprint_bytes, c.fact, c.seq, o.instance, o.kind,
        coalesce(u.fact, 9223372036854775807) AS until_fact, coalesce(u.seq, 9223372036854775807) AS until_seq
    FROM pages_claimed c JOIN opened o USING (stretch, operation)
    LEFT JOIN pages_unclaimed u USING (stretch, operation, page)
),
turns AS MATERIALIZED (
    SELECT *, greatest(fact, coalesce(max(until_fact) OVER ahead, 0)) AS pays_fact,
        greatest(seq, coalesce(max(until_seq) OVER ahead, 0)) AS pays_seq
    FROM claims
    WINDOW ahead AS (
        PARTITION BY stretch, instance, kind, page ORDER BY fact
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
claiming AS (
    SELECT u.stretch, u.seq, format('{} no longer claims page {}, and did not claim it',
        operation_name(u.operation), u.page) AS why
    FROM pages_unclaimed u SEMI JOIN opened o USING (stretch, operation)
    ANTI JOIN pages_claimed c USING (stretch, operation, page)
),
first_dues AS (
    SELECT stretch, operation, sum(footprint_bytes) AS bytes FROM turns WHERE pays_fact = fact GROUP BY ALL
),
beginning AS (
    SELECT r.stretch, r.seq, format('{} is granted {} bytes, and is first in line for {}',
        operation_name(r.operation), r.bytes, coalesce(d.bytes, 0)) AS why
    FROM reservation_changes r JOIN config c USING (stretch) LEFT JOIN first_dues d USING (stretch, operation)
    WHERE r.what IN ('granted', 'admitted') AND c.charge = 'shared' AND r.bytes <> coalesce(d.bytes, 0)
),
-- Who is in line is known where the stretch has its settings, and so its beginning.
sharing AS (SELECT stretch FROM config WHERE charge = 'shared'),
payments AS (
    SELECT stretch, operation, pays_seq AS seq, footprint_bytes AS bytes
    FROM turns SEMI JOIN sharing USING (stretch)
    WHERE pays_fact < until_fact
    UNION ALL
    SELECT stretch, operation, until_seq, -footprint_bytes
    FROM turns SEMI JOIN sharing USING (stretch)
    WHERE pays_fact < until_fact AND until_fact < 9223372036854775807
),
dues AS (
    SELECT stretch, operation, seq,
        sum(sum(bytes)) OVER (PARTITION BY stretch, operation ORDER BY seq) AS due_bytes
    FROM payments GROUP BY stretch, operation, seq
),
paid AS (
    SELECT stretch, operation, seq, last_value(due_bytes IGNORE NULLS) OVER story AS due_bytes,
        last_value(reserved_bytes IGNORE NULLS) OVER story AS reserved_bytes
    FROM dues FULL JOIN (FROM states SEMI JOIN sharing USING (stretch)) t USING (stretch, operation, seq)
    WINDOW story AS (PARTITION BY stretch, operation ORDER BY seq)
),
standing AS (
    SELECT p.stretch, p.seq, format('{} is first in line for {} bytes, and has {} reserved',
        operation_name(operation), coalesce(due_bytes, 0), coalesce(reserved_bytes, 0)) AS why
    FROM paid p WHERE coalesce(due_bytes, 0) <> coalesce(reserved_bytes, 0)
)
FROM asking UNION ALL FROM granting UNION ALL FROM needing UNION ALL FROM claiming UNION ALL FROM beginning
UNION ALL FROM standing;
