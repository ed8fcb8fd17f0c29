"""A program that uses the GPU, says how much memory it sees, and ends when its input closes."""

JOB = """
import sys, time
import tandem
from cuda.bindings import driver
driver.cuInit(0)
result, device = driver.cuDeviceGet(0)
result, context = driver.cuDevicePrimaryCtxRetain(device)
driver.cuCtxSetCurrent(context)
result, free, total = driver.cuMemGetInfo()
while not tandem.is_managed():  # soon, if the daemon was late for its first call
    time.sleep(0.01)
print(total, flush=True)
sys.stdin.read()
"""
