-- reservation_levels: reservation_changes, with what is reserved from each of them on.
--
-- what_before           null: the operation's first in this stretch
-- bytes_before          reserved for the operation before; null where this stretch does not tell
-- all_bytes, warm_bytes                      reserved for all operations, and for hints alone
-- instance_bytes, instance_warm_bytes        the same of its instance
--
-- Sums are right in whole stretches only: elsewhere some was reserved before.
CREATE TABLE reservation_levels AS
SELECT *,
    lag(what) OVER life AS what_before, lag(bytes) OVER life AS bytes_before,
    sum(change_bytes) OVER of_all AS all_bytes,
    sum(if(kind = 'warm', change_bytes, 0)) OVER of_all AS warm_bytes,
    sum(change_bytes) OVER of_instance AS instance_bytes,
    sum(if(kind = 'warm', change_bytes, 0)) OVER of_instance AS instance_warm_bytes
FROM reservation_changes
WINDOW life AS (PARTITION BY stretch, operation ORDER BY fact),
    of_all AS (PARTITION BY stretch ORDER BY fact ROWS UNBOUNDED PRECEDING),
    of_instance AS (PARTITION BY stretch, instance ORDER BY fact ROWS UNBOUNDED PRECEDING);
