-- slot_writes: one row for each write of a page to an SSD slot, from its submission to its end.
--
-- generation   null: its memory was allocated before this stretch of the log begins
-- ended_*      null: it is under way
CREATE TABLE slot_writes AS
WITH turns AS (
    SELECT stretch, fact, seq, slot, buffer, 'submitted' AS what FROM writes_submitted
    UNION ALL SELECT stretch, fact, seq, slot, NULL, 'written' FROM slots_written
    UNION ALL SELECT stretch, fact, seq, slot, NULL, 'failed' FROM writes_failed
),
followed AS (
    SELECT *,
        lead(fact) OVER turn AS next_fact, lead(seq) OVER turn AS next_seq, lead(what) OVER turn AS next_what
    FROM turns WINDOW turn AS (PARTITION BY stretch, slot ORDER BY fact)
)
SELECT f.stretch, f.slot, f.buffer, u.generation, f.fact AS submitted_fact, f.seq AS submitted_seq,
    if(next_what <> 'submitted', next_fact, NULL) AS ended_fact,
    if(next_what <> 'submitted', next_seq, NULL) AS ended_seq,
    if(next_what <> 'submitted', next_what, NULL) AS outcome
FROM followed f
LEFT JOIN buffer_uses u
    ON u.stretch = f.stretch AND u.fact = f.fact AND u.buffer = f.buffer AND u.what = 'written'
WHERE f.what = 'submitted';
