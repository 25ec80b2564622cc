-- grid: the buckets of each stretch, from the one of its first record to the one of its last.
CREATE TEMP TABLE grid AS
SELECT stretch, bucket, begin_ms + bucket * bucket_ms AS left_ms
FROM spans, unnest(generate_series(0, floor((end_ms - begin_ms) / bucket_ms)::BIGINT)) AS b(bucket);
