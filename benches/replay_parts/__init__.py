"""The parts of `benches.replay`, one subject each. A part is a module with

    def measure(report: Report, log: BenchLog, rounds: int) -> None

which adds its tables and goals to the report. All parts of a run get the same log.
"""
