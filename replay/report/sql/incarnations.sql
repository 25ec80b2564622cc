-- What the log speaks of: its stretches, how each ends and the settings that it was decided by.
SELECT p.stretch, p.incarnation, p.first_seq, p.next_seq, p.begin_ms, p.end_ms, p.bucket_ms, p.bar_ms, p.whole,
    (SELECT count(*) FROM incarnation_closed e WHERE e.stretch = p.stretch) > 0 AS closed,
    c.* EXCLUDE (stretch, seq, fact, incarnation)
FROM spans p LEFT JOIN config c USING (stretch)
ORDER BY p.stretch;
