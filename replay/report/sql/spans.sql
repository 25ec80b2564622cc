-- spans: one row for each stretch that has records, with the steps that charts over time count in.
--
-- bucket_ms   of lines: the stretch's own, so that it can be looked at closely
-- bar_ms      of bars: the same for all stretches, so that they compare
-- $buckets    how many steps a stretch is divided into at most
-- $bars       and how many bars all of them together, about
--
-- Both are round numbers: 1, 2 or 5 times a power of ten.
CREATE TEMP TABLE spans AS
WITH
told AS (
    SELECT s.stretch, s.incarnation, s.first_seq, s.next_seq, s.whole, min(m.ms) AS begin_ms, max(m.ms) AS end_ms
    FROM stretches s JOIN moments m USING (stretch)
    GROUP BY ALL
),
divided AS (
    SELECT *, greatest((end_ms - begin_ms) / $buckets, 1.0) AS bucket,
        greatest(sum(end_ms - begin_ms) OVER () / $bars, 1.0) AS bar,
        10.0 ** floor(log10(bucket)) AS bucket_power, 10.0 ** floor(log10(bar)) AS bar_power
    FROM told
)
SELECT stretch, incarnation, first_seq, next_seq, whole, begin_ms, end_ms,
    bucket_power * ([n FOR n IN [1, 2, 5, 10] IF n * bucket_power >= bucket * 0.999999])[1] AS bucket_ms,
    bar_power * ([n FOR n IN [1, 2, 5, 10] IF n * bar_power >= bar * 0.999999])[1] AS bar_ms
FROM divided;
