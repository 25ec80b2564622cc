"""A small engine with real processes, real copies and no model: what drives OrbitKV without a GPU.

One scheduler process and R rank processes per engine. Queueing, prefix cache, admission, restores and
saves are those of a serving engine; page bytes really move and every restored page is compared. Only
the time that a GPU would compute is a model (`compute_model`), and figures that rest on it say so.
"""
