-- reservations: one row for each operation that had bytes of its budget reserved.
--
-- stretch, operation   its key
-- kind             demand, or warm for a hint
-- name, request    of the operation
-- instance         whose budget it was
-- began_seq, began_at_ns   when it was granted or admitted; null: before this stretch of the log begins
-- bytes            reserved then
-- changes          how often that changed afterwards
-- most_bytes       at any time
-- last_bytes       what is reserved now, or was at the end
-- ended_seq        the last holder of its bytes let go; null: one holds them still
-- held_us          from its beginning to there
CREATE VIEW reservations AS
WITH sums AS (
    SELECT stretch, operation, any_value(kind) AS kind, any_value(instance) AS instance,
        min(seq) FILTER (what IN ('granted', 'admitted')) AS began_seq,
        arg_min(bytes, fact) FILTER (what IN ('granted', 'admitted')) AS bytes,
        count(*) FILTER (what IN ('leased', 'shrunk', 'grown') AND change_bytes <> 0) AS changes,
        max(bytes) AS most_bytes, arg_max(bytes, fact) FILTER (what <> 'ended') AS last_bytes,
        min(seq) FILTER (what = 'ended') AS ended_seq
    FROM reservation_changes GROUP BY ALL
)
SELECT s.stretch, s.operation, s.kind, o.name, o.request, s.instance, s.began_seq, b.at_ns AS began_at_ns,
    s.bytes, s.changes, s.most_bytes, s.last_bytes, s.ended_seq, (e.at_ns - b.at_ns) // 1000 AS held_us
FROM sums s
LEFT JOIN operations o ON o.stretch = s.stretch AND o.operation = s.operation AND o.kind = s.kind
LEFT JOIN records b ON b.stretch = s.stretch AND b.seq = s.began_seq
LEFT JOIN records e ON e.stretch = s.stretch AND e.seq = s.ended_seq;
