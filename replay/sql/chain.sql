-- An incarnation begins once, with the command Start, and IncarnationClosed stands in its last record. A
-- successor closes the chain before its own: of an incarnation that is not the log's last, the end is closed.
--
-- That records follow each other without a gap, in time that never falls, is what the reader sees to.
WITH
starts AS (
    SELECT r.stretch, r.seq, format('an incarnation begins at seq {} with {}', r.seq, r.cause) AS why
    FROM records r ANTI JOIN incarnation_started i USING (stretch, seq)
    WHERE r.seq = 1 OR r.cause = 'Start'
    UNION ALL
    SELECT i.stretch, i.seq,
        format('incarnation {} is started at seq {} of incarnation {}', i.incarnation, i.seq, s.incarnation)
    FROM incarnation_started i JOIN stretches s USING (stretch)
    WHERE i.seq <> 1 OR i.incarnation <> s.incarnation
    UNION ALL
    SELECT stretch, seq, 'the incarnation is started again'
    FROM incarnation_started QUALIFY row_number() OVER (PARTITION BY stretch ORDER BY fact) > 1
),
closes AS (SELECT stretch, min(seq) AS seq FROM incarnation_closed GROUP BY ALL),
-- Where segments are missing between the two, which the reader tells, nothing is known of the end.
followed AS (
    SELECT *, lead(incarnation) OVER story AS following, lead(first_seq) OVER story AS following_seq
    FROM stretches WINDOW story AS (PARTITION BY log ORDER BY stretch)
),
closing AS (
    SELECT c.stretch, c.seq + 1 AS seq, 'the incarnation was closed by the record before' AS why
    FROM closes c JOIN stretches s USING (stretch) WHERE s.next_seq > c.seq + 1
    UNION ALL
    SELECT c.stretch, c.seq, format('the chain is closed by {}', r.cause)
    FROM incarnation_closed c JOIN records r USING (stretch, seq) WHERE r.cause <> 'CloseIncarnation'
    UNION ALL
    SELECT stretch, seq, 'the incarnation is closed again' FROM incarnation_closed
    QUALIFY row_number() OVER (PARTITION BY stretch ORDER BY fact) > 1
    UNION ALL
    SELECT f.stretch, f.next_seq - 1,
        format('incarnation {} ends here, incarnation {} follows, and the chain is not closed',
            f.incarnation, f.following)
    FROM followed f ANTI JOIN closes c USING (stretch)
    ANTI JOIN troubles t
        ON t.log = f.log AND t.kind = 'segment' AND t.incarnation = f.following AND t.seq = f.following_seq
    WHERE f.following <> f.incarnation AND f.next_seq > f.first_seq
    UNION ALL
    SELECT stretch, first_seq, format('incarnation {} stands behind incarnation {}', incarnation, before)
    FROM (SELECT *, lag(incarnation) OVER (PARTITION BY log ORDER BY stretch) AS before FROM stretches)
    WHERE incarnation < before
)
FROM starts UNION ALL FROM closing;
