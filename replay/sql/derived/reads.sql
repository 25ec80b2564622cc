-- reads: one row for each page read from the SSD, from the queue to its end.
--
-- queued_*     null: it was queued before this stretch of the log begins
-- generation   of the buffer that it was submitted with
CREATE TABLE reads AS
WITH
queued AS (
    SELECT stretch, read, min(fact) AS queued_fact, min(seq) AS queued_seq, arg_min(page, fact) AS page
    FROM reads_queued GROUP BY ALL
),
submitted AS (
    SELECT s.stretch, s.read, s.origin, s.fact, s.seq, b.generation
    FROM reads_submitted s ASOF LEFT JOIN buffers_allocated b
        ON b.stretch = s.stretch AND b.buffer = s.buffer AND b.fact <= s.fact
),
submissions AS (
    SELECT stretch, read, min(fact) AS submitted_fact, min(seq) AS submitted_seq,
        arg_min(origin, fact) AS origin, arg_min(generation, fact) AS generation
    FROM submitted GROUP BY ALL
),
landings AS (
    SELECT stretch, read, min(fact) AS landed_fact, min(seq) AS landed_seq FROM reads_landed GROUP BY ALL
)
SELECT * FROM queued
FULL JOIN submissions USING (stretch, read)
FULL JOIN landings USING (stretch, read);
