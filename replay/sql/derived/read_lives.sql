-- read_lives: one row for each page read from the SSD, with the first time that each thing happened to it.
--
-- queued_*     null: it was queued before this stretch of the log begins
-- ended_*      it landed (outcome `whole`) or failed; null: it has not, or was dropped
-- landed_*     it ended whole
-- over_*       it landed, failed or was dropped
-- generation   of the buffer that it was submitted with; null: allocated before this stretch
CREATE TABLE read_lives AS
WITH
told AS (
    SELECT stretch, read, fact, seq, 'queued' AS what, page, NULL AS buffer, NULL AS slot,
        origin::VARCHAR AS word, NULL AS flag, NULL AS read_bytes FROM reads_queued
    UNION ALL
    SELECT stretch, read, fact, seq, 'submitted', NULL, buffer, slot, origin::VARCHAR, foreground, NULL
    FROM reads_submitted
    UNION ALL SELECT stretch, read, fact, seq, 'dropped', NULL, NULL, NULL, NULL, no_room, NULL FROM reads_dropped
    UNION ALL
    SELECT stretch, read, fact, seq, 'ended', NULL, NULL, NULL, 'whole', NULL, read_bytes FROM reads_landed
    UNION ALL
    SELECT stretch, read, fact, seq, 'ended', NULL, NULL, NULL, outcome::VARCHAR, NULL, NULL FROM reads_failed
),
lives AS (
    SELECT stretch, read,
        min(fact) FILTER (what = 'queued') AS queued_fact, min(seq) FILTER (what = 'queued') AS queued_seq,
        arg_min(page, fact) AS page, arg_min(word, fact) FILTER (what = 'queued') AS queued_origin,
        min(fact) FILTER (what = 'submitted') AS submitted_fact,
        min(seq) FILTER (what = 'submitted') AS submitted_seq,
        arg_min(word, fact) FILTER (what = 'submitted') AS origin,
        arg_min(buffer, fact) AS buffer, arg_min(slot, fact) AS slot,
        arg_min(flag, fact) FILTER (what = 'submitted') AS foreground,
        min(fact) FILTER (what = 'dropped') AS dropped_fact, min(seq) FILTER (what = 'dropped') AS dropped_seq,
        arg_min(flag, fact) FILTER (what = 'dropped') AS no_room,
        min(fact) FILTER (what = 'ended') AS ended_fact, min(seq) FILTER (what = 'ended') AS ended_seq,
        arg_min(word, fact) FILTER (what = 'ended') AS outcome, arg_min(read_bytes, fact) AS read_bytes,
        if(outcome = 'whole', ended_fact, NULL) AS landed_fact, if(outcome = 'whole', ended_seq, NULL) AS landed_seq,
        least(min(fact) FILTER (what = 'dropped'), min(fact) FILTER (what = 'ended')) AS over_fact,
        max(fact) AS last_fact, count(*) AS facts, count(DISTINCT what) AS kinds
    FROM told GROUP BY ALL
)
SELECT l.*, u.generation
FROM lives l LEFT JOIN buffer_uses u
    ON u.stretch = l.stretch AND u.fact = l.submitted_fact AND u.buffer = l.buffer AND u.what = 'read into';
