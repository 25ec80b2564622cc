-- reservation_changes: one row for each fact that changes what an operation has reserved.
--
-- stretch, fact   its key; `seq` is the record
-- operation, kind   that pays: a demand, or warm for a hint
-- instance        whose budget it is
-- what            granted, admitted, leased, shrunk, grown or ended
-- bytes           reserved for the operation from here on
-- change_bytes    against what was reserved before; null: that was reserved before this stretch of the log
CREATE TABLE reservation_changes AS
WITH
payers AS (
    SELECT stretch, operation, 'demand' AS kind, any_value(instance) AS instance FROM query_opened GROUP BY ALL
    UNION ALL
    SELECT stretch, operation, 'warm', any_value(instance) FROM hint_admitted GROUP BY ALL
),
told AS (
    SELECT stretch, seq, fact, operation, 'granted' AS what, charge_bytes AS bytes FROM query_granted
    UNION ALL SELECT stretch, seq, fact, operation, 'admitted', charge_bytes FROM hint_admitted
    UNION ALL SELECT stretch, seq, fact, operation, 'leased', charge_bytes FROM lease_granted
    UNION ALL SELECT stretch, seq, fact, operation, 'shrunk', charge_bytes FROM reservation_shrunk
    UNION ALL SELECT stretch, seq, fact, operation, 'grown', charge_bytes FROM reservation_grown
    UNION ALL SELECT stretch, seq, fact, operation, 'ended', 0 FROM reservation_ended
)
SELECT t.stretch, t.seq, t.fact, t.operation, p.kind, p.instance, t.what, t.bytes,
    t.bytes - if(t.what IN ('granted', 'admitted'), 0, lag(t.bytes) OVER life) AS change_bytes
FROM told t LEFT JOIN payers p USING (stretch, operation)
WINDOW life AS (PARTITION BY t.stretch, t.operation ORDER BY t.fact);
