-- slot_contents: one row for each page that an SSD slot held, from the slot's assignment or recovery.
--
-- page           null: its memory was allocated before this stretch of the log begins
-- findable_*     from here on reads may be submitted: the write ended, or it was recovered; null: never
-- ended_*        it was freed or quarantined; null: the slot still holds it
CREATE TABLE slot_contents AS
WITH
turns AS (
    SELECT w.stretch, w.submitted_fact AS fact, w.submitted_seq AS seq, w.slot, 'assigned' AS what,
        w.generation, g.page,
        if(w.outcome = 'written', w.ended_fact, NULL) AS findable_fact,
        w.ended_fact AS write_ended_fact, w.ended_seq AS write_ended_seq
    FROM slot_writes w LEFT JOIN generation_lives g USING (stretch, generation)
    UNION ALL
    SELECT stretch, fact, seq, slot, 'recovered', NULL, page, fact, fact, seq FROM slots_recovered
    UNION ALL SELECT stretch, fact, seq, slot, 'freed', NULL, NULL, NULL, NULL, NULL FROM slots_freed
    UNION ALL SELECT stretch, fact, seq, slot, 'quarantined', NULL, NULL, NULL, NULL, NULL FROM slots_quarantined
    UNION ALL SELECT stretch, fact, seq, slot, 'condemned', NULL, NULL, NULL, NULL, NULL FROM slots_condemned
),
followed AS (
    SELECT *, lead(what) OVER turn AS next_what, lead(fact) OVER turn AS next_fact, lead(seq) OVER turn AS next_seq
    FROM turns WINDOW turn AS (PARTITION BY stretch, slot ORDER BY fact)
)
SELECT stretch, slot, what AS began, fact AS since_fact, seq AS since_seq, generation, page, findable_fact,
    write_ended_fact, write_ended_seq, next_what AS ended, next_fact AS ended_fact, next_seq AS ended_seq
FROM followed WHERE what IN ('assigned', 'recovered');
