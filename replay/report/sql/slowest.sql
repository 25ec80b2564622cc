-- The queries that took longest from their opening to usable KV, the slowest first. Those that were answered
-- in the record that opened them took no time.
--
-- $limit   how many at most
SELECT *, usable_ms - opened_ms AS took_ms FROM asked
WHERE usable_ms > opened_ms ORDER BY took_ms DESC, stretch, operation LIMIT $limit;
