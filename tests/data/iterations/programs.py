"""Made-up programs, by what can be said of their iterations."""

from iterations import aperiodic, serving, training

PERIODIC = {
    program.__name__: program
    for program in (
        training.train,
        training.train_asynchronously,
        training.train_with_logging,
        training.train_with_evaluation,
        training.accumulate,
        training.change_shapes,
        training.alternate,
        training.train_then_decode,
        training.train_on_graphs,
        training.prefetch,
        training.train_beside_a_loader,
        training.recompute,
        training.warm_up,
        training.save_now_and_then,
        training.critics,
        training.critics_that_report,
        serving.decode,
        serving.few_kernels,
        serving.replay_graphs,
        serving.decode_with_growing_cache,
        serving.batch_continuously,
        serving.search_beams,
        serving.speculate,
        serving.answer,
        serving.denoise,
    )
}
"""Loops: nearly every label is found."""

TAKING_TURNS = {
    program.__name__: program for program in (training.roll_out_and_learn, serving.answer_for_two)
}
"""Loops that replace each other: what is found is right, but not all is found."""

APERIODIC = {
    program.__name__: program
    for program in (
        aperiodic.wander,
        aperiodic.explore,
        aperiodic.serve_a_mixture,
        aperiodic.crawl,
    )
}
"""Nothing may be claimed. Each takes a seed."""
