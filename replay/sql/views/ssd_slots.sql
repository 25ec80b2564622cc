-- ssd_slots: one row for each page that an SSD slot held, from the write's submission, or recovery, to its end.
--
-- stretch, slot, since_fact   its key
-- segment         of the page file that the slot lies in
-- began           assigned (to a page of DRAM) or recovered (an earlier incarnation wrote it)
-- since_seq       when
-- page            the page's number
-- generation      of the DRAM page that was written; null where it was recovered
-- findable_seq    from here on lookups find it; null: never
-- write_ended_seq   when its write ended
-- reads           that were submitted for it
-- ended_seq       from here on the slot holds no page; null: it still does
-- ended           reclaimed, other_page, write_failed or quarantined
CREATE VIEW ssd_slots AS
WITH
reads AS (
    SELECT c.stretch, c.slot, c.since_fact, count(*) AS reads
    FROM reads_submitted r ASOF JOIN slot_contents c
        ON c.stretch = r.stretch AND c.slot = r.slot AND c.since_fact <= r.fact
    GROUP BY ALL
)
SELECT c.stretch, c.slot, c.since_fact, c.slot // f.ssd_slots_per_segment_max AS segment, c.began, c.since_seq,
    c.page, c.generation, if(c.findable_fact IS NULL, NULL, c.write_ended_seq) AS findable_seq,
    c.write_ended_seq, coalesce(r.reads, 0) AS reads, c.ended_seq, coalesce(e."end"::VARCHAR, c.ended) AS ended
FROM slot_contents c
LEFT JOIN config f ON f.stretch = c.stretch
LEFT JOIN reads r ON r.stretch = c.stretch AND r.slot = c.slot AND r.since_fact = c.since_fact
LEFT JOIN slots_freed e ON e.stretch = c.stretch AND e.fact = c.ended_fact AND e.slot = c.slot;
