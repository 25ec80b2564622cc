-- slice_copies: one row for each fact about a copy of a rank's slice into the memory of a save.
--
-- what       started, filled or lost
-- former_*   of the fact before about the same rank's slice of the same generation
CREATE TABLE slice_copies AS
WITH copies AS (
    SELECT stretch, fact, seq, session, rank, buffer, 'started' AS what FROM copies_started
    UNION ALL SELECT stretch, fact, seq, session, rank, buffer, 'filled' FROM slices_filled
    UNION ALL SELECT stretch, fact, seq, session, rank, buffer, 'lost' FROM copies_lost
)
SELECT c.*, u.generation, lag(c.what) OVER turn AS former, lag(c.session) OVER turn AS former_session
FROM copies c JOIN buffer_uses u ON u.stretch = c.stretch AND u.fact = c.fact AND u.buffer = c.buffer
WHERE u.generation IS NOT NULL AND u.what IN ('copied into', 'filled', 'not filled')
WINDOW turn AS (PARTITION BY u.stretch, u.generation, c.rank ORDER BY c.fact);
