"""A job that has ended, as the state file records it."""

from tandemd.core.model import JobClass
from tandemd.core.past import PastJob

PAST = PastJob(
    job_id=7,
    uid=1000,
    user="ann",
    name="train",
    group="sweep",
    job_class=JobClass.BATCH,
    gpus=("0",),
    command="train.py",
    began_wall_ns=100,
    ended_wall_ns=200,
    outcome="ended",
    gpu_ns=50,
    shared_ns=0,
    waited_ns=5,
    peak_bytes=9,
    launches=3,
    iterations=2,
    refusals=1,
    findings=("leak",),
)
