-- operation_name: an operation as the timeline names it, by its opener's session and its ticket.
CREATE OR REPLACE TEMP MACRO operation_name(operation) AS
    format('{}.{}', operation >> 32, operation & 4294967295);
