-- decisions: one row for each decision: what a demand was answered with, or what the lookup of a hint saw.
--
-- stretch, fact   its key
-- seq, at_ns      the record, and when it was on the manager's clock
-- kind            demand, or warm for the lookup of a hint
-- operation       null for a hint that was not admitted
-- instance, request, attempt   whose it is; null: the demand was opened before this stretch of the log begins
-- asked           pages; always dram + peer + ssd + miss
-- dram, peer, ssd, miss   by the tier that they came from, or would have
-- answer          of a demand: ready, or why it has no hits; of a hint: admitted, skipped or not_needed
CREATE VIEW decisions AS
WITH hints AS (
    SELECT stretch, seq, instance, request, attempt, operation, 'admitted' AS answer FROM hint_admitted
    UNION ALL SELECT stretch, seq, instance, request, attempt, NULL, 'skipped' FROM hint_skipped
    UNION ALL SELECT stretch, seq, instance, request, attempt, NULL, 'not_needed' FROM hint_not_needed
)
SELECT d.stretch, d.fact, d.seq, r.at_ns, 'demand' AS kind, d.operation, q.instance, q.request, q.attempt,
    d.asked, d.dram, d.peer, d.ssd, d.miss,
    CASE WHEN l.lease IS NOT NULL THEN 'ready' ELSE e."end"::VARCHAR END AS answer
FROM decision_settled d
JOIN records r USING (stretch, seq)
LEFT JOIN query_opened q ON q.stretch = d.stretch AND q.operation = d.operation
LEFT JOIN lease_granted l ON l.stretch = d.stretch AND l.seq = d.seq AND l.operation = d.operation
LEFT JOIN query_ended e ON e.stretch = d.stretch AND e.seq = d.seq AND e.operation = d.operation
UNION ALL
SELECT p.stretch, p.fact, p.seq, r.at_ns, 'warm', h.operation, p.instance, p.request, p.attempt,
    p.asked, p.dram, p.peer, p.ssd, p.miss, h.answer
FROM warm_probed p
JOIN records r USING (stretch, seq)
LEFT JOIN hints h ON h.stretch = p.stretch AND h.seq = p.seq AND h.instance = p.instance
    AND h.request = p.request AND h.attempt = p.attempt;
