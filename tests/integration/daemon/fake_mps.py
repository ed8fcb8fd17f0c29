"""An MPS control program with the new interface, as NVIDIA's "MPS v3 Interface" describes it.

Its servers are lines of a file, each with a process that only sleeps.
"""

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

PIPES = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "."))
SERVERS, CONTROL = PIPES / "servers", PIPES / "control"
USAGE = "modules: server namespace client device\n  -a, --apply <file>\n"


def create(name, uid, devices):
    sleeper = subprocess.Popen(["sleep", "60"], start_new_session=True)
    with SERVERS.open("a") as file:
        file.write(f"{name},{uid},{sleeper.pid},Ready,{PIPES / name},{devices or '-'},-\n")


def serve(path):
    for name, server in tomllib.loads(Path(path).read_text())["servers"].items():
        create(name, server["uid"], server.get("allowed_devices"))
    (PIPES / "pid").write_text(str(os.getpid()))
    os.mkfifo(CONTROL)
    signal.sigwait({signal.SIGTERM})
    CONTROL.unlink()


def lives(row):
    try:
        return Path(f"/proc/{row.split(',')[2]}/stat").read_text().split()[2] != "Z"
    except OSError:  # the process may end at any moment
        return False


def main(words):
    match words:
        case ["-p", "3", "-h"]:
            print(USAGE)
        case ["-f", "-p", "3", "-a", path] if os.environ.get("FAKE_MPS") != "broken":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            serve(path)
        case ["-q"]:
            os.kill(int((PIPES / "pid").read_text()), signal.SIGTERM)
        case ["server", "list", "--format=csv,noheader"]:
            print(*filter(lives, SERVERS.read_text().splitlines()), sep="\n")
        case ["server", "create", name, uid, *devices]:
            create(name, uid.partition("=")[2], "".join(devices).partition("=")[2])
        case ["client", "list", "--server=tandem", "--format=csv,noheader"]:
            print("51023,tandem,0,default,python train.py")
        case _:
            sys.exit(1)


main(sys.argv[1:])
