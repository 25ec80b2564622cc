-- Demands, hints, leases and half-filled saves live as long as the configuration says, and no longer: what is
-- past its deadline is ended by the next tick, and is not met by a manager that has been awake for a sweep
-- since its deadline.
WITH
demand_ends AS (
    SELECT stretch, operation, min(fact) AS fact, min(seq) AS seq
    FROM (
        SELECT stretch, operation, fact, seq FROM lease_granted
        UNION ALL SELECT stretch, operation, fact, seq FROM query_ended
    )
    GROUP BY ALL
),
-- A save is half-filled until its trailer is begun or it is dropped.
saves AS (
    SELECT b.stretch, b.seq, b.deadline_ns, b.buffer, e.seq AS left_seq
    FROM save_begun b ASOF LEFT JOIN (
        SELECT stretch, buffer, fact, seq FROM seals_started
        UNION ALL SELECT stretch, buffer, fact, seq FROM saves_dropped_buffers
    ) e ON e.stretch = b.stretch AND e.buffer = b.buffer AND e.fact > b.fact
),
spans AS (
    SELECT o.stretch, o.seq, o.deadline_ns, 'demand' AS kind, o.operation AS number, e.seq AS left_seq
    FROM query_opened o LEFT JOIN demand_ends e USING (stretch, operation)
    UNION ALL
    SELECT o.stretch, o.seq, o.deadline_ns, 'hint', o.operation, e.seq
    FROM hint_admitted o LEFT JOIN hint_ended e USING (stretch, operation)
    UNION ALL
    SELECT o.stretch, o.seq, o.deadline_ns, 'lease', o.lease, e.seq
    FROM lease_granted o LEFT JOIN lease_ended e USING (stretch, lease)
    UNION ALL
    SELECT stretch, seq, deadline_ns, 'save', buffer, left_seq FROM saves
),
lives AS MATERIALIZED (
    SELECT v.*, r.at_ns FROM spans v JOIN records r USING (stretch, seq)
),
lengths AS (
    SELECT stretch, seq, kind, number, format('is to live for {} ns, the setting is {}',
        deadline_ns - at_ns, lifetime_ns) AS what
    FROM (
        SELECT v.*, CASE kind
            WHEN 'demand' THEN c.demand_lifetime_ns WHEN 'hint' THEN c.hint_lifetime_ns
            WHEN 'lease' THEN c.lease_lifetime_ns ELSE c.save_lifetime_ns END AS lifetime_ns
        FROM lives v JOIN config c USING (stretch)
    )
    WHERE deadline_ns - at_ns <> lifetime_ns
),
old AS MATERIALIZED (
    SELECT v.*, l.at_ns AS left_ns
    FROM lives v LEFT JOIN records l ON l.stretch = v.stretch AND l.seq = v.left_seq
    WHERE l.at_ns IS NULL OR l.at_ns >= v.deadline_ns
),
ticks AS (SELECT stretch, seq, at_ns FROM records WHERE cause = 'Tick'),
ticked AS (
    SELECT v.stretch, t.seq, kind, number, 'is past its deadline at this tick, and goes on' AS what
    FROM old v ASOF JOIN ticks t ON t.stretch = v.stretch AND t.at_ns >= v.deadline_ns
    WHERE v.left_seq IS NULL OR v.left_seq > t.seq
),
awake AS (
    SELECT v.*, r.at_ns + c.sweep_interval_ns AS overdue_ns
    FROM old v JOIN config c USING (stretch)
    ASOF JOIN records r ON r.stretch = v.stretch AND r.at_ns >= v.deadline_ns + c.sweep_interval_ns
    WHERE v.left_ns IS NULL OR v.left_ns >= v.deadline_ns + 2 * c.sweep_interval_ns
),
overdue AS (
    SELECT v.stretch, r.seq, kind, number, 'is past its deadline and a sweep, and goes on' AS what
    FROM awake v ASOF JOIN records r ON r.stretch = v.stretch AND r.at_ns >= v.overdue_ns
    WHERE v.left_seq IS NULL OR v.left_seq > r.seq
)
SELECT stretch, seq, format('{} {} {}', if(kind = 'save', 'the save in buffer', kind),
    if(kind IN ('demand', 'hint'), operation_name(number), number::VARCHAR), what) AS why
FROM (FROM lengths UNION ALL FROM ticked UNION ALL FROM overdue);
