-- budget_timeline: one row for each change of the reserved bytes, with what is reserved from there on.
--
-- stretch, fact    its key
-- seq, at_ns       the record, and when it was on the manager's clock
-- operation, kind, instance   that pays
-- what, change_bytes   granted, admitted, leased, shrunk, grown or ended, and by how much
-- reserved_bytes, limit_bytes   over all operations
-- speculative_bytes, speculative_limit_bytes   of these by hints
-- instance_bytes, instance_limit_bytes   by this instance
-- instance_speculative_bytes, instance_speculative_limit_bytes   of these by hints
--
-- What was reserved before this stretch of the log begins is not counted; limits are null where its first
-- record, which holds the settings, is not in the log.
CREATE VIEW budget_timeline AS
SELECT c.stretch, c.fact, c.seq, r.at_ns, c.operation, c.kind, c.instance, c.what, c.change_bytes,
    sum(c.change_bytes) OVER all_of_them::BIGINT AS reserved_bytes,
    f.query_budget_bytes AS limit_bytes,
    coalesce(sum(c.change_bytes) FILTER (c.kind = 'warm') OVER all_of_them, 0)::BIGINT AS speculative_bytes,
    f.query_budget_bytes // f.speculative_divisor AS speculative_limit_bytes,
    sum(c.change_bytes) OVER of_instance::BIGINT AS instance_bytes,
    f.instance_query_budget_bytes AS instance_limit_bytes,
    coalesce(sum(c.change_bytes) FILTER (c.kind = 'warm') OVER of_instance, 0)::BIGINT
        AS instance_speculative_bytes,
    f.instance_query_budget_bytes // f.speculative_divisor AS instance_speculative_limit_bytes
FROM reservation_changes c
JOIN records r ON r.stretch = c.stretch AND r.seq = c.seq
LEFT JOIN config f ON f.stretch = c.stretch
WINDOW all_of_them AS (PARTITION BY c.stretch ORDER BY c.fact),
    of_instance AS (PARTITION BY c.stretch, c.instance ORDER BY c.fact);
