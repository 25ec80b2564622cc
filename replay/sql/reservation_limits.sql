-- What operations have reserved stays within the limits at the end of every record: over all instances, of
-- each instance, and of hints alone the speculative share of both. A reservation begins once, with a grant or
-- an admission, only then shrinks and grows, is never negative, and ends once; nothing changes it afterwards.
-- With charge = shared a lease may take over what an earlier payer let go of, and be more than its demand paid.
WITH
steps AS (
    SELECT l.*, s.whole, c.charge, operation_name(operation) AS name
    FROM reservation_levels l JOIN stretches s USING (stretch) LEFT JOIN config c USING (stretch)
),
life AS (
    SELECT stretch, seq, format('the reservation of {} is {}, and was {} before', name, what,
        coalesce(what_before, 'never granted')) AS why
    FROM steps
    WHERE if(what IN ('granted', 'admitted'), what_before IS NOT NULL,
        what_before = 'ended' OR (what_before IS NULL AND whole))
    UNION ALL
    SELECT stretch, seq,
        format('the reservation of {} is {} from {} to {} bytes', name, what, bytes_before, bytes)
    FROM steps
    WHERE what_before <> 'ended' AND CASE what
        WHEN 'leased' THEN bytes > bytes_before AND charge = 'owner'
        WHEN 'shrunk' THEN bytes >= bytes_before
        WHEN 'grown' THEN bytes <= bytes_before
        ELSE false END
    UNION ALL
    SELECT stretch, seq, format('{} has {} bytes reserved', name, bytes) FROM steps WHERE bytes < 0
),
sums AS (
    SELECT l.stretch, l.seq, format('instance {}', instance) AS who,
        arg_max(instance_bytes, l.fact) AS reserved_bytes, arg_max(instance_warm_bytes, l.fact) AS warm_bytes,
        any_value(c.instance_query_budget_bytes) AS limit_bytes,
        any_value(c.instance_query_budget_bytes // c.speculative_divisor) AS share_bytes
    FROM reservation_levels l JOIN config c USING (stretch)
    GROUP BY l.stretch, l.seq, instance
    UNION ALL
    SELECT l.stretch, l.seq, 'all instances', arg_max(all_bytes, l.fact), arg_max(warm_bytes, l.fact),
        any_value(c.query_budget_bytes), any_value(c.query_budget_bytes // c.speculative_divisor)
    FROM reservation_levels l JOIN config c USING (stretch)
    GROUP BY l.stretch, l.seq
),
limits AS (
    SELECT stretch, seq, format('the operations of {} have {} bytes reserved, their limit is {}',
        who, reserved_bytes, limit_bytes) AS why
    FROM sums WHERE reserved_bytes > limit_bytes
    UNION ALL
    SELECT stretch, seq, format('the hints of {} have {} bytes reserved, their share is {}',
        who, warm_bytes, share_bytes)
    FROM sums WHERE warm_bytes > share_bytes
)
FROM life UNION ALL FROM limits;
