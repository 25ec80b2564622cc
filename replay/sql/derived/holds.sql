-- holds: why a generation's memory may not be used again, one row for each reason.
--
-- holder    index: lookups find it; demand: a query, its lease or a copy has it; read: the device fills it;
--           write: the device reads it; save: ranks fill it
-- until_*   the greatest number: it still does
-- known     nothing that this depends on is older than this stretch of the log
CREATE TABLE holds AS
WITH
held AS (
    SELECT stretch, generation, 'index' AS holder, inserted_fact AS since_fact,
        inserted_seq AS since_seq,
        evicted_fact AS until_fact, evicted_seq AS until_seq, true AS known
    FROM generation_lives WHERE inserted_fact IS NOT NULL
    UNION ALL
    SELECT stretch, generation, 'save', begun_fact, begun_seq,
        coalesce(sealed_fact, given_up_fact), coalesce(sealed_seq, given_up_seq), true
    FROM generation_lives WHERE begun_fact IS NOT NULL
    UNION ALL
    SELECT stretch, generation, 'demand', had_fact, had_seq, let_go_fact, let_go_seq, known
    FROM query_pages WHERE held AND generation IS NOT NULL
    UNION ALL
    SELECT stretch, generation, 'read', submitted_fact, submitted_seq, ended_fact, ended_seq, true
    FROM read_lives WHERE generation IS NOT NULL
    UNION ALL
    SELECT stretch, generation, 'write', submitted_fact, submitted_seq, ended_fact, ended_seq, true
    FROM slot_writes WHERE generation IS NOT NULL
)
SELECT stretch, generation, holder, since_fact, since_seq, known,
    coalesce(until_fact, 9223372036854775807) AS until_fact,
    coalesce(until_seq, 9223372036854775807) AS until_seq
FROM held;
