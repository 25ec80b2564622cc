-- moments: when each record was made, in milliseconds since 1970 (UTC).
--
-- The manager's monotonic clock, placed by the wall clock that the stretch began with: a wall clock that was
-- set meanwhile does not make records change places.
CREATE TEMP VIEW moments AS
SELECT r.stretch, r.seq, (r.at_ns + o.wall_offset_ns) / 1e6 AS ms
FROM records r
JOIN (SELECT stretch, arg_min(wall_offset_ns, first_seq) AS wall_offset_ns FROM segments GROUP BY stretch) o
    USING (stretch);
