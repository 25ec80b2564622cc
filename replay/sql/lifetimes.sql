-- Demands, hints, leases and half-filled saves live as long as the configuration says, and no longer: what is
-- past its deadline is ended by the next tick, and is not met by a manager that has been awake for a sweep
-- since its deadline. Nothing expires early.
WITH
spans AS (
    SELECT o.stretch, o.seq, format('demand {}', operation_name(operation)) AS name, o.deadline_ns,
        'demand' AS kind,
        least(min(l.fact), min(e.fact)) AS left_fact, least(min(l.seq), min(e.seq)) AS left_seq
    FROM query_opened o
    LEFT JOIN lease_granted l USING (stretch, operation) LEFT JOIN query_ended e USING (stretch, operation)
    GROUP BY o.stretch, o.seq, o.fact, o.operation, o.deadline_ns
    UNION ALL
    SELECT o.stretch, o.seq, format('hint {}', operation_name(operation)), o.deadline_ns, 'hint', min(e.fact),
        min(e.seq)
    FROM hint_admitted o LEFT JOIN hint_ended e USING (stretch, operation)
    GROUP BY o.stretch, o.seq, o.fact, o.operation, o.deadline_ns
    UNION ALL
    SELECT o.stretch, o.seq, format('lease {}', lease), o.deadline_ns, 'lease', min(e.fact), min(e.seq)
    FROM lease_granted o LEFT JOIN lease_ended e USING (stretch, lease)
    GROUP BY o.stretch, o.seq, o.fact, o.lease, o.deadline_ns
),
-- A save is half-filled until its trailer is begun or it is dropped.
saves AS (
    SELECT b.stretch, b.seq, format('the save in buffer {}', b.buffer) AS name, b.deadline_ns, 'save' AS kind,
        e.fact AS left_fact, e.seq AS left_seq
    FROM save_begun b ASOF LEFT JOIN (
        SELECT stretch, buffer, fact, seq FROM seals_started
        UNION ALL SELECT stretch, buffer, fact, seq FROM saves_dropped_buffers
    ) e ON e.stretch = b.stretch AND e.buffer = b.buffer AND e.fact > b.fact
),
lives AS (
    SELECT v.*, r.at_ns, v.deadline_ns - r.at_ns AS life_ns
    FROM (FROM spans UNION ALL FROM saves) v JOIN records r USING (stretch, seq)
),
lengths AS (
    SELECT v.stretch, v.seq,
        format('{} is to live for {} ns, the setting is {}', name, life_ns, lifetime_ns) AS why
    FROM (
        SELECT v.*, CASE kind
            WHEN 'demand' THEN c.demand_lifetime_ns WHEN 'hint' THEN c.hint_lifetime_ns
            WHEN 'lease' THEN c.lease_lifetime_ns ELSE c.save_lifetime_ns END AS lifetime_ns
        FROM lives v JOIN config c USING (stretch)
    ) v
    WHERE life_ns <> lifetime_ns
),
ticks AS (SELECT stretch, seq, at_ns FROM records WHERE cause = 'Tick'),
ticked AS (
    SELECT v.stretch, t.seq, format('{} is past its deadline at this tick, and goes on', name) AS why
    FROM lives v ASOF JOIN ticks t ON t.stretch = v.stretch AND t.at_ns >= v.deadline_ns
    WHERE v.left_seq IS NULL OR v.left_seq > t.seq
),
swept AS (
    SELECT v.*, c.sweep_interval_ns, r.at_ns AS awake_ns
    FROM lives v JOIN config c USING (stretch)
    ASOF JOIN records r ON r.stretch = v.stretch AND r.at_ns >= v.deadline_ns + c.sweep_interval_ns
),
overdue AS (
    SELECT v.stretch, r.seq, format('{} is past its deadline and a sweep, and goes on', name) AS why
    FROM swept v ASOF JOIN records r ON r.stretch = v.stretch AND r.at_ns >= v.awake_ns + v.sweep_interval_ns
    WHERE v.left_seq IS NULL OR v.left_seq > r.seq
)
FROM lengths UNION ALL FROM ticked UNION ALL FROM overdue;
