"""Wires the parts of the daemon and starts the threads they run in.

core thread     owns the scheduler, the channels and the poller's Python side; on the virtual clock
                it also serves the attach socket, so that a run is reproducible
attach thread   reads the attach socket (real clock)
users thread    asks the user database who a newcomer is (real clock)
login thread    hands out tokens
proofs thread   tests whether sets of SMs are disjoint (real clock)
mps thread      watches the MPS control daemon
rpc thread      accepts calls; threads of its pools, up to as many for each uid, ask the core thread
native threads  look at shared pages, stamp the heartbeat
main thread     waits for signals
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import structlog

from tandem import _mps, _native, _set_probe
from tandem.errors import UsageError
from tandemd import selftest
from tandemd.awaited_gpus import AwaitedGpus
from tandemd.config.config import (
    Config,
    reserves_on,
    too_much_kept_free,
    unknown_gpus,
    unknown_names,
)
from tandemd.config.restarts import keys_changed, keys_for_restart
from tandemd.core.events import (
    CheckpointProcess,
    MpsClientsListed,
    ProcessCheckpointed,
    SubstrateFailed,
)
from tandemd.core.model import Options
from tandemd.core.past import past_of
from tandemd.core.scheduler import Scheduler
from tandemd.desk import Desk
from tandemd.edges.attach import AttachServer, Message
from tandemd.edges.channel import Channels
from tandemd.edges.checkpoint_driver import CheckpointDriver
from tandemd.edges.checkpoints import Checkpointer, Target
from tandemd.edges.clock import Clock, MonotonicClock, SoftGpuClock
from tandemd.edges.gpus import Gpu, GpuIndex, Inventory, find_inventory
from tandemd.edges.helper import WANTED, find_helper
from tandemd.edges.homes import Homes
from tandemd.edges.job_files import JobFiles
from tandemd.edges.login import LoginServer
from tandemd.edges.modes import found_mode, has_own_mps
from tandemd.edges.mps import LeftMps, MpsControl, unshimmed
from tandemd.edges.mps_helped import HelpedMps
from tandemd.edges.rpc import RpcServer
from tandemd.edges.set_proof import Asker, SetProofs
from tandemd.host import Host
from tandemd.identities import Identities
from tandemd.introductions import Introductions
from tandemd.loop import Change, Loop
from tandemd.observers.auditor import Auditor
from tandemd.remembered import Remembered
from tandemd.room import raise_descriptor_limit, require_threads
from tandemd.runtime import ATTACH_SOCKET, LOGIN_SOCKET, RPC_SOCKET, RuntimeDir
from tandemd.sessions import CLOCK_MONOTONIC, CLOCK_VIRTUAL, Sessions

PROOF_ANSWER_S = 2.0  # timeout for the MPS control daemon's answer before sets are proved under it
RESTORE_S = 60.0  # for everything the driver has saved to be restored before the daemon exits
VITAL = ("attach", "login")  # without these threads newcomers are not heard
OVERLAPPING = ("mps", "mps+green")  # modes that require MPS
STOP_S = 5.0  # a thread that takes longer to end is left to the process exit
FRESH_S = 2.0

log = structlog.get_logger(__name__)


class Daemon:
    """The running daemon. The main thread creates, starts and stops it."""

    def __init__(
        self, *, config: Config, directory: RuntimeDir, soft_clock: bool, state: Path | None = None
    ) -> None:
        """`state` is the file for what is kept across restarts; None keeps nothing."""
        self.failure: BaseException | None = None
        self._config = self._begun = config
        self._directory = directory
        self._soft_clock = soft_clock
        self._state = state
        self._identities = Identities()
        self._helper = find_helper(os.environ, uid=os.geteuid())
        self._auditor: Auditor | None = None
        self._built: Future[None] = Future()
        self._core = threading.Thread(target=self._run_core, name="core", daemon=True)
        self._threads: list[threading.Thread] = []
        self._stops: list[Callable[[], None]] = []

    def start(self) -> None:
        """Start all threads; returns once everything answers.

        If this fails, `stop` still has to end what was started.

        Raises:
            UsageError: a socket or `metrics.listen` is not available, or a `reserve_memory` leaves
                jobs nothing of a GPU.
            StateError: the process may open too few files or have too few threads.
            OSError: a library or a clock is not available.
        """
        raise_descriptor_limit()
        require_threads()
        self._inventory: Inventory = find_inventory(for_jobs=True)
        if wrong := too_much_kept_free(self._config, self._inventory.gpus()):
            raise UsageError(wrong)
        self._warn_of_unknown(self._config)
        self._mps = self._open_mps()
        if self._mps is not None:
            self._stops.append(self._mps.stop)
        self._try_modes()
        self._core.start()
        self._built.result()
        if self._mps is not None:
            self._sessions.on_attach.append(self._mps.newcomer)
            self._spawn("mps", self._mps.run)
        self._prove_sets()
        self._limits = self._config.limits_for(os.geteuid(), self._identities)
        self._desk = Desk(
            loop=self._loop,
            sessions=self._sessions,
            inventory=self._inventory,
            limits=self._limits,
            privacy=self._config.daemon.privacy,
            runtime_dir=self._directory.path,
        )
        self._desk.renew_gpus = self._renew_gpus
        self._desk.helper = self._helper
        if self._mps is not None:
            self._desk.idle_mps, self._desk.end_mps = self._mps.idle_servers, self._mps.end_servers
        self._desk.mode_wanted = lambda gpu: self._config.mode_of(gpu.index, gpu.uuid_text)
        self._serve()
        if not self._loop.clock.is_virtual:
            self._spawn("attach", self._attach.run)
            self._watch_gpus()
            self._keep_job_files()

    def _watch_gpus(self) -> None:
        self._auditor = auditor = Auditor(
            loop=self._loop, sessions=self._sessions, inventory=self._inventory
        )
        self._sessions.on_attach.append(auditor.newcomer)
        self._spawn("audit", auditor.run)
        self._stops.append(auditor.stop)
        if not self._inventory.gpus():
            awaited = AwaitedGpus(self._inventory, tell=self._welcome_gpus)
            self._spawn("gpus", awaited.run)
            self._stops.append(awaited.stop)

    def _serve(self) -> None:
        """Start the servers that clients connect to."""
        path = self._directory.path
        with _binding(f"runtime directory '{path}'"):
            login = LoginServer(path / LOGIN_SOCKET)
            rpc = RpcServer(
                path / RPC_SOCKET,
                desk=self._desk,
                peer_for=login.peer_for,
                is_ready=self.is_ready,
            )
            login.also_refused = rpc.refusal
        self._serve_metrics()
        self._spawn("login", login.run)
        rpc.start()
        self._stops += [rpc.stop, login.stop]
        self._directory.has_sockets = True

    def _prove_sets(self) -> None:
        """Prove sets in the background, started last: no job waits for the result."""
        if self._loop.clock.is_virtual:
            return
        self._spawn("set proofs", self._proofs.run)
        # Stopped first, for their probes are clients of MPS.
        self._stops[:0] = [self._proofs.stop, self._asker.stop]

    def _serve_metrics(self) -> None:
        """Serve metrics if configured; changing that needs a restart."""
        if not (listen := self._config.metrics.listen):
            return
        # Imported only on demand, because it costs memory.
        from tandemd.edges.metrics import exposition
        from tandemd.edges.scrape import ScrapeServer

        # Requests count as the daemon's own uid: whoever reaches the socket sees all jobs.
        own_uid = os.geteuid()
        with _binding(f"metrics.listen = '{listen}'"):
            server = ScrapeServer(listen, render=lambda: exposition(self._desk.metrics(own_uid)))
        self._spawn("metrics", server.run)
        self._stops.append(server.stop)
        log.info("serving metrics", at=server.address)

    def _keep_job_files(self) -> None:
        """Write job files if configured; changing that needs a restart."""
        if not (folder := self._config.metrics.hpc_job_mapping_dir):
            return
        try:
            files = JobFiles(Path(folder), jobs_on=self._desk.jobs_on)
        except OSError as error:
            raise UsageError(
                f"metrics.hpc_job_mapping_dir = '{folder}': cannot be written: {error.strerror}"
            ) from error
        self._spawn("job files", files.run)
        self._stops.append(files.stop)

    def stop(self) -> None:
        """Release all jobs and end all threads.

        If the runtime directory is lost, sockets and MPS are left alone: they are ended by their
        names, and what is at that path now may belong to another daemon.
        """
        is_lost = bool(self._directory.why_lost())
        for stop in () if is_lost else self._stops:
            stop()
        if self._built.done() and self._built.exception() is None:
            self._loop.stop()
            self._attach.stop()
        for thread in (self._core,) if is_lost else (self._core, *self._threads):
            with contextlib.suppress(RuntimeError):  # never started
                thread.join(STOP_S)
        if self._built.done() and self._built.exception() is None:
            self._bring_back()
            self._loop.remembered.close(STOP_S)
        if not is_lost:
            self._directory.clean()

    def is_alive(self) -> bool:
        """Tell whether the core and the threads that accept newcomers still run."""
        return self._core.is_alive() and self.failure is None

    def is_fresh(self) -> bool:
        """Tell whether the core completed a round lately. Virtual time may rightly stand still."""
        if self._loop.clock.is_virtual:
            return self.is_alive()
        return time.monotonic_ns() - self._loop.last_round_ns < FRESH_S * 1e9

    def is_ready(self) -> bool:
        """Tell whether newcomers are served and their GPUs work. Any thread; does not block."""
        answers = self._auditor is None or self._auditor.is_answered
        return answers and self.is_alive() and self.is_fresh()

    def reconfigure(self, config: Config) -> None:
        """Switch to another configuration; logs when it is in force and what needs a restart.

        Raises:
            UsageError: no file can be made in `memory.swap_dir`, or a `reserve_memory` leaves jobs
                nothing of a GPU; nothing has changed.
        """
        limits = config.limits_for(os.geteuid(), self._identities)
        self._look_at_gpus()
        if wrong := too_much_kept_free(config, self._inventory.gpus()):
            raise UsageError(wrong)
        self._warn_of_unknown(config)
        options = self._options(config)
        self._host.use(config.memory.directory)
        changed = ", ".join(keys_changed(self._config, config)) or "nothing"
        self._config = config
        self._proofs.want(self._asking_for_sets(), again=True)
        self._warn_of_restart(config)

        def apply() -> None:
            now_ns = self._loop.clock.now_ns()
            self._desk.is_reload_good = False  # until all of it is in force
            rights = self._desk.rights
            # Permissions first: who may do and see what.
            self._sessions.limits = rights.limits = limits
            rights.privacy = config.daemon.privacy
            self._remembered.keep_most_past(config.daemon.history)
            self._loop.watchdog.change(config.watchdog.watch())
            self._regard_gpus()
            known = self._with_sets(options)
            # May differ from the configured one, if somebody had set it.
            before = self._loop.scheduler.options.policy
            for action in self._loop.scheduler.change_options(known, now_ns=now_ns):
                self._loop.perform(action)
            for uid in {job.uid for job in self._loop.scheduler.jobs.values()}:
                self._sessions.regard(uid, now_ns)
            self._desk.is_reload_good = True
            policy = config.scheduler.policy
            log.info("configuration read again", changed=changed, policy=policy, before=before)

        self._loop.post(apply)

    def note_failed_reload(self) -> None:
        """Report the failed reload in the metrics, in order after any pending reload."""

        def apply() -> None:
            self._desk.is_reload_good = False

        self._loop.post(apply)

    def _warn_of_restart(self, config: Config) -> None:
        keys = [*keys_for_restart(self._begun, config), *self._modes_for_restart(config)]
        if keys:
            log.warning("these settings take effect only after a restart", keys=", ".join(keys))

    def _modes_for_restart(self, config: Config) -> list[str]:
        """Return the keys that ask for an MPS that is not there: it is set up only at startup."""
        wanted = [gpu for gpu in self._inventory.gpus() if _is_for(config, gpu, *OVERLAPPING)]
        begun = [gpu for gpu in self._inventory.gpus() if _is_for(self._begun, gpu, *OVERLAPPING)]
        if self._mps is not None and not begun:
            return []  # MPS was already running and serves all GPUs
        new = [gpu for gpu in wanted if gpu not in begun]
        return sorted(
            {f"gpu.{config.section_of('mode', gpu.index, gpu.uuid_text)}.mode" for gpu in new}
        )

    def _warn_of_unknown(self, config: Config) -> None:
        if wrong := unknown_gpus(config, self._inventory.gpus()):
            log.warning(
                "the configuration names gpus that this machine does not have", reason=wrong
            )
        # In a thread: the user database may not answer, and nothing here should wait for it.
        threading.Thread(target=_warn_of_nobody, args=(config,), name="names", daemon=True).start()

    def _renew_gpus(self) -> None:
        """Look for added or removed GPUs; returns once the core knows them."""
        self._look_at_gpus()
        found = self._options(self._config)
        self._proofs.want(self._asking_for_sets())

        def apply() -> None:
            self._regard_gpus()
            scheduler, now_ns = self._loop.scheduler, self._loop.clock.now_ns()
            options = replace(
                scheduler.options,
                mps_gpus=found.mps_gpus,
                mig_gpus=found.mig_gpus,
                sm_counts=found.sm_counts,
                why_not=found.why_not,
                gpu_names=found.gpu_names,
            )
            for action in scheduler.change_options(self._with_sets(options), now_ns=now_ns):
                self._loop.perform(action)

        self._loop.ask(apply)

    def _welcome_gpus(self) -> None:
        """Take in the first GPUs, which appeared after the daemon had started."""
        log.info("gpus have appeared", gpus=len(self._inventory.gpus()))
        self._renew_gpus()
        self._warn_of_unknown(self._config)
        self._warn_of_restart(self._config)

    def _look_at_gpus(self) -> None:
        try:
            self._inventory.refresh()
        except OSError as error:
            log.warning("cannot look for GPUs, continuing with those known", reason=str(error))
        self._try_modes()

    def _try_modes(self) -> None:
        gpus, own_pipes = self._inventory.gpus(), self._directory.path / "mps"
        self._why_not = selftest.why_not(gpus, os.environ, own_pipes)

    def _spawn(self, name: str, target: Callable[[], None]) -> None:
        def run() -> None:
            try:
                target()
            except BaseException as error:
                log.exception("a thread died", name=name)
                if name in VITAL:
                    self.failure = error

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _run_core(self) -> None:
        try:
            self._build()
        except BaseException as error:  # raised again for the caller of `start`
            self._built.set_exception(error)
            return
        self._built.set_result(None)
        try:
            self._loop.run()
        except BaseException as error:
            self.failure = error
            log.exception("the scheduler's loop died, all jobs run ungated")

    def _build(self) -> None:
        # Not in the constructor: the clock, the poller and the pages belong to this thread.
        clock: Clock = MonotonicClock()
        if self._soft_clock and (soft := SoftGpuClock()).is_virtual:
            clock = soft  # its real clock is CLOCK_MONOTONIC and needs no observer
        self._remembered = Remembered(
            self._state, at_once=clock.is_virtual, most_past=self._config.daemon.history
        )
        self._make_proofs(clock)
        scheduler = Scheduler(self._with_sets(self._options(self._config)))
        poller = _native.Poller()
        self._host = Host(
            directory=self._config.memory.directory,
            post=lambda errand: self._loop.post(errand),
            at_once=clock.is_virtual,
        )
        homes = Homes(
            host=self._host,
            send=lambda *packet: self._sessions.outboxes.send(*packet),
            tell=lambda event: self._loop.note(event(clock.now_ns())),
            node_of=lambda process_id: self._nodes.get(scheduler.processes[process_id].gpu),
        )
        channels = Channels(
            send=lambda *packet: self._sessions.outboxes.send(*packet),
            offer=lambda *packet: self._sessions.outboxes.offer(*packet),
            homes=homes,
        )
        self._loop = Loop(
            scheduler=scheduler,
            clock=clock,
            poller=poller,
            channels=channels,
            remembered=self._remembered,
        )
        self._loop.watchdog.change(self._config.watchdog.watch())
        self._gpu_index = GpuIndex(())
        self._regard_gpus()
        limits = self._config.limits_for(os.geteuid(), self._identities)
        self._sessions = Sessions(
            scheduler=scheduler,
            channels=channels,
            poller=poller,
            limits=limits,
            gpu_index=self._gpu_index,
            clock_kind=CLOCK_VIRTUAL if clock.is_virtual else CLOCK_MONOTONIC,
        )
        self._sessions.remembered = self._loop.remembered
        self._loop.watchers.add(lambda change: self._sessions.remember(change.job_id))
        self._loop.watchers.add(self._keep_past)
        self._checkpointer = Checkpointer(
            post=lambda errand: self._loop.post(errand),
            at_once=clock.is_virtual,
            driver=CheckpointDriver(),
            helper=self._helper,
        )
        self._loop.checkpoint, self._loop.signal = self._checkpoint, self._sessions.signal
        introductions = Introductions(
            identities=self._identities,
            trusted_uids=limits.trusted_uids,
            deliver=self._deliver,
            at_once=clock.is_virtual,
        )
        with _binding(f"runtime directory '{self._directory.path}'"):
            self._attach = AttachServer(
                self._directory.path / ATTACH_SOCKET,
                deliver=introductions.take,
                max_per_uid=self._config.daemon.max_processes_per_uid,
            )
        self._sessions.attach = self._attach
        self._sessions.surroundings = self._surroundings
        self._sessions.unserved = self._unserved
        self._sessions.is_draining = self._is_draining
        self._sessions.note = self._loop.note
        self._loop.attach = self._attach if clock.is_virtual else None

    def _keep_past(self, change: Change) -> None:
        """Add a job that has just ended to the history."""
        job = self._loop.scheduler.finished.get(change.job_id)
        if change.kind != "exited" or job is None:
            return
        self._loop.energies.keep_past(
            past_of(
                job,
                user=self._sessions.limits.user_of(job.uid),
                command=self._sessions.commands.get(job.job_id, ""),
                name_of=self._loop.scheduler.options.name_of,
                wall_ns=self._loop.calendar.wall_ns,
            )
        )

    def _make_proofs(self, clock: Clock) -> None:
        self._asker = Asker()
        self._proofs = SetProofs(
            environment=self._environment_of_proof,
            tell=self._tell_of_sets,
            ask=self._asker,
            at_once=clock.is_virtual,
            known=self._remembered.split_of,
        )
        with clock.outside():  # the probe may be a client of the device that owns this clock
            self._proofs.want(self._asking_for_sets())

    def _regard_gpus(self) -> None:
        """Tell all parts on the core thread which GPUs exist now."""
        gpus = self._inventory.gpus()
        # GPUs can appear after the configuration was checked.
        if wrong := too_much_kept_free(self._config, gpus):
            log.warning("ignoring a reserve_memory that leaves jobs nothing", reason=wrong)
        reserves = reserves_on(self._config, gpus)
        capacity_bytes = {
            gpu.index: gpu.memory_total_bytes
            - (reserves[gpu.index].size_bytes if gpu.index in reserves else 0)
            for gpu in gpus
        }
        self._gpu_index.learn(gpus)
        self._nodes = {gpu.index: gpu.numa_node for gpu in gpus}
        self._loop.energies.read = self._inventory.energy_mj
        line = self._loop.scheduler.memory.line
        line.capacity_bytes = capacity_bytes
        line.reserves.put(reserves)
        self._loop.watchdog.capacity_bytes = dict(capacity_bytes)
        self._loop.bounds.gpus = {gpu.index: gpu for gpu in gpus}
        self._loop.scheduler.tuning.recall(self._loop.remembered.trials_on(gpus))

    def _options(self, config: Config) -> Options:
        gpus = self._inventory.gpus()
        return replace(
            config.options(self._mps_gpus(config), {gpu.index: gpu.sm_count for gpu in gpus}),
            mig_gpus=frozenset(gpu.index for gpu in gpus if gpu.instance),
            why_not=self._why_not,
            gpu_names={gpu.index: gpu.name for gpu in gpus if gpu.instance},
        )

    def _with_sets(self, options: Options) -> Options:
        """Add what is known about sets by now. Core thread only, before it tells the scheduler."""
        asking = self._asking_for_sets()
        proofs = self._proofs.of(asking)
        for gpu in asking:
            if (proof := proofs.get(gpu.index)) and proof.split:
                self._remembered.keep_split(gpu, proof.split)
        return replace(
            options,
            splits={gpu: proof.split for gpu, proof in proofs.items() if proof.split},
            unproved={gpu: proof.problem for gpu, proof in proofs.items() if proof.problem},
            proving=frozenset(gpu for gpu, proof in proofs.items() if proof.is_under_way),
            retried=frozenset(
                gpu for gpu, proof in proofs.items() if proof.problem and not proof.is_final
            ),
        )

    def _asking_for_sets(self) -> list[Gpu]:
        config = self._config
        mps_gpus = self._mps_gpus(config)
        return [
            gpu
            for gpu in self._inventory.gpus()
            if gpu.index in mps_gpus and config.mode_of(gpu.index, gpu.uuid_text) == "mps+green"
        ]

    def _tell_of_sets(self) -> None:
        def apply() -> None:
            self._go_on_with(self._with_sets(self._loop.scheduler.options))

        self._loop.post(apply)

    def _go_on_with(self, options: Options) -> None:
        """Apply the options if they differ from the current ones. Core thread only."""
        scheduler, now_ns = self._loop.scheduler, self._loop.clock.now_ns()
        if options != scheduler.options:
            for action in scheduler.change_options(options, now_ns=now_ns):
                self._loop.perform(action)

    def _environment_of_proof(self, gpu: Gpu) -> dict[str, str] | str:
        if self._mps is None or has_own_mps(gpu, os.environ):
            return dict(os.environ)
        place = self._mps.directory
        found = place and _set_probe.as_client(place, os.environ, timeout_s=PROOF_ANSWER_S)
        # Without MPS the two probes would take turns, which proves nothing.
        return found or "mps is not ready"

    def _checkpoint(self, action: CheckpointProcess) -> None:
        target = self._target(action.process_id)
        if target is None:
            return

        def tell(problem: str) -> None:
            now_ns = self._loop.clock.now_ns()
            self._loop.handle(
                ProcessCheckpointed(
                    now_ns=now_ns,
                    process_id=action.process_id,
                    away=action.away,
                    problem=problem,
                )
            )

        self._checkpointer.move(target, away=action.away, tell=tell)

    def _target(self, process_id: int) -> Target | None:
        info = self._sessions.info.get(process_id)
        if info is None:
            return None
        return Target(pid=info.pid, is_there=info.is_there, uid=info.uid, pidfd=info.target.pidfd)

    def _bring_back(self) -> None:
        """Restore what the driver saved, because nobody would after exit. The core has ended."""
        jobs = {
            target: job.display_name
            for process_id, job in self._loop.scheduler.checkpoints.leave().items()
            if (target := self._target(process_id)) is not None
        }
        if not jobs:
            return
        log.info("bringing back what the driver saved", processes=len(jobs), within_s=RESTORE_S)
        for target, problem in self._checkpointer.bring_back([*jobs], timeout_s=RESTORE_S).items():
            log.error("it stays saved", job=jobs[target], pid=target.pid, problem=problem)

    def _mps_gpus(self, config: Config) -> frozenset[int]:
        def is_mps(gpu: Gpu) -> bool:
            said = config.mode_of(gpu.index, gpu.uuid_text)
            if said == "time" or gpu.instance is not None:
                return False
            if not self._is_watched(gpu, config):
                return found_mode(gpu, os.environ) == "mps"
            return self._mps is not None and self._mps.directory is not None

        return frozenset(gpu.index for gpu in self._inventory.gpus() if is_mps(gpu))

    def _is_watched(self, gpu: Gpu, config: Config) -> bool:
        """Tell whether the GPU's MPS, if any, is the one that this daemon watches.

        In mode auto, programs find MPS by their own environment, and ours may be elsewhere.
        """
        if self._mps is None or has_own_mps(gpu, os.environ):
            return False
        if config.mode_of(gpu.index, gpu.uuid_text) in OVERLAPPING:
            return True
        return self._mps.place in (None, _mps.pipes_of(os.environ))

    def _open_mps(self) -> MpsControl | None:
        """Start MPS where the configuration asks for it, or watch a running one; None: neither."""
        config, gpus = self._config, self._inventory.gpus()
        cut = {gpu.instance.gpu for gpu in gpus if gpu.instance}
        if unheard := [index for index in cut if self._config.mode_of(index, "") != "auto"]:
            log.warning("mig is on, and its instances ignore the configured mode", gpus=unheard)
        asking = [gpu for gpu in gpus if _is_for(config, gpu, *OVERLAPPING)]
        found = [
            gpu
            for gpu in gpus
            if _is_for(config, gpu, "auto") and found_mode(gpu, os.environ) == "mps"
        ]
        # The MPS found may be the one left over.
        if not asking and not (found and os.environ.get(_mps.PIPES)):
            self._end_left_mps()
        if not asking and not found:
            return None
        few = [gpu.uuid_text for gpu in asking] if len(asking) < len(gpus) else ()
        control = MpsControl(
            own=self._directory.path / "mps",
            environment=os.environ,
            gpus=few if asking else None,
            tell=self._tell_of_mps,
            uid=os.geteuid(),
        )
        control.helped = self._helped_mps()
        control.name_clients = self._take_mps_clients
        control.open()
        return control

    def _helped_mps(self) -> HelpedMps | None:
        return None if self._helper is None else HelpedMps(self._helper, unshimmed(os.environ))

    def _end_left_mps(self) -> None:
        left = LeftMps(self._directory.path / "mps", os.environ, helped=self._helped_mps())
        if left.is_there:
            log.info("mps of an earlier daemon still has clients, and is ended once it has none")
            self._stops.append(left.stop)
            self._spawn("left mps", left.run)

    def _tell_of_mps(self, what: str, ago_s: float) -> None:
        mps_gpus = self._mps_gpus(self._config)
        self._proofs.want(self._asking_for_sets(), again=True)  # MPS may be ready now

        def apply() -> None:
            scheduler, now_ns = self._loop.scheduler, self._loop.clock.now_ns()
            gpus = (mps_gpus | scheduler.options.mps_gpus) & self._watched_gpus()
            since_ns = now_ns - round(ago_s * 1e9)
            event = SubstrateFailed(now_ns=now_ns, since_ns=since_ns, gpus=gpus, what=what)
            self._loop.handle(event)
            # Refresh the sets too: while there was no MPS, a probe may have reported that there are
            # none.
            self._go_on_with(self._with_sets(replace(scheduler.options, mps_gpus=mps_gpus)))

        self._loop.post(apply)

    def _take_mps_clients(self, pids: frozenset[int]) -> None:
        def apply() -> None:
            gpus = self._loop.scheduler.options.mps_gpus & self._watched_gpus()
            known = self._sessions.info.items()
            named = frozenset(process_id for process_id, info in known if info.pid in pids)
            now_ns = self._loop.clock.now_ns()
            event = MpsClientsListed(now_ns=now_ns, gpus=gpus, process_ids=named)
            self._loop.handle(event)

        self._loop.post(apply)

    def _watched_gpus(self) -> frozenset[int]:
        gpus = self._inventory.gpus()
        return frozenset(gpu.index for gpu in gpus if self._is_watched(gpu, self._config))

    def _surroundings(self, uid: int, gpus: frozenset[int]) -> dict[str, str]:
        """Return the MPS variables for a job that may use it; only root's MPS serves others."""
        options = self._loop.scheduler.options
        meant = gpus or frozenset(options.sm_counts)
        is_ours = options.overlaps(meant) and meant & self._watched_gpus()
        if self._mps is None or not is_ours or self._unserved(uid, gpus):
            return {}
        return self._mps.variables()

    def _is_draining(self, index: int) -> bool:
        gpus = (gpu for gpu in self._gpu_index.gpus if gpu.index == index)
        return any(map(self._remembered.is_draining, gpus))

    def _unserved(self, uid: int, gpus: frozenset[int]) -> str:
        options = self._loop.scheduler.options
        meant = gpus or frozenset(options.sm_counts)
        if not options.mode_of(meant).startswith("mps"):
            return ""
        place = self._mps.directory if self._mps and meant & self._watched_gpus() else None
        owner = _mps.owner_of(place or _mps.pipes_of(os.environ))
        if _mps.serves(owner, uid):
            nowhere = self._mps is not None and place is not None and not self._mps.variables()
            return "the running mps has no server for the daemon's user" if nowhere else ""
        log.warning("mps serves only its own user", owner=owner, uid=uid)
        why = f"the running mps is of uid {owner} and serves no other: the job takes turns with it"
        has_helper = self._helper is None or self._helper.is_there
        return why if has_helper else f"{why}; {WANTED}"

    def _deliver(self, message: Message) -> None:
        self._loop.post(lambda: self._sessions.take(message, self._loop.clock.now_ns()))


def _is_for(config: Config, gpu: Gpu, *modes: str) -> bool:
    """Tell whether a GPU that our MPS may serve is configured to be in one of the modes."""
    said = config.mode_of(gpu.index, gpu.uuid_text)
    return said in modes and gpu.instance is None and not has_own_mps(gpu, os.environ)


@contextlib.contextmanager
def _binding(what: str) -> Iterator[None]:
    """Turn a failure to bind, such as an address in use, into an error that names what it is for.

    Raises:
        UsageError: the system, or gRPC, refuses.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{what}: cannot listen there: {error}") from error


def _warn_of_nobody(config: Config) -> None:
    if nobody := unknown_names(config):
        log.warning("the configuration names users or groups that do not exist", reason=nobody)
