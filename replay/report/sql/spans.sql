-- spans: one row for each stretch that has records, with the buckets that charts over time count in.
--
-- bucket_ms   a round number: 1, 2 or 5 times a power of ten
-- $buckets    how many a stretch is divided into at most
CREATE TEMP TABLE spans AS
SELECT *, if(raw_ms <= power, 1, if(raw_ms <= 2 * power, 2, if(raw_ms <= 5 * power, 5, 10))) * power AS bucket_ms
FROM (
    SELECT s.stretch, s.incarnation, s.first_seq, s.next_seq, s.whole, min(m.ms) AS begin_ms, max(m.ms) AS end_ms,
        greatest((end_ms - begin_ms) / $buckets, 1.0) AS raw_ms, 10.0 ** floor(log10(raw_ms)) AS power
    FROM stretches s JOIN moments m USING (stretch)
    GROUP BY ALL
);
