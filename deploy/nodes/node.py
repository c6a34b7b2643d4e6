"""Run a program that does not outlive its starter, in a network of its own if it is given one.

    python -I node.py '{"command": ["sleep", "9"], "log": "log.txt", "network": ["198.18.0.1", "198.18.0.2"]}'

The network is a namespace with one link to that of the starter, whose two ends have the two addresses. This process
carries its packets from end to end, and can lose or delay them as `tc netem` does, which not every kernel has (nor
every system iproute2). Nothing of it is left when this process ends, however that happens: the kernel removes devices
and namespaces with the last process that holds them.

Lines of JSON on the standard input change things: `{"loss": 0.05, "delay": 0.1, "up": true}` the link (a share of the
packets, seconds of a round trip), `{"signal": 9}` sends a signal to the program, `{"start": true}` starts it again. The
end of the input ends the program, with SIGTERM and later with SIGKILL; so does the end of the starter. Needs the
standard library alone, and Linux.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from itertools import count
from typing import Any

CLONE_NEWNET, PR_SET_PDEATHSIG = 0x40000000, 1
TUNSETIFF, IFF_TUN, IFF_NO_PI, IFF_UP = 0x400454CA, 0x0001, 0x1000, 0x1
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x8914, 0x8916, 0x891C
NETLINK_ROUTE, RTM_NEWROUTE, REQUEST, ACKNOWLEDGE, REPLACE, CREATE = 0, 24, 0x1, 0x4, 0x100, 0x400
OF_ADDRESSES = 254, 2, 253, 1  # table, protocol, scope and type of the routes that the kernel makes for addresses
RTA_DST, RTA_OIF, RTA_PREFSRC, RTA_METRICS, RTAX_LOCK, RTAX_RTO_MIN = 1, 4, 7, 8, 1, 13
#: Milliseconds after which TCP sends a packet again at the earliest. Linux waits 200 by default, several times as long
#: as a prediction takes; a receiver may wait 40 with its acknowledgement.
REPEATED_AFTER = 50
PACKET_BYTES = 2**16
TURN_PACKETS = 64  # that one end may send before the other is looked at
GRACE_SECONDS = 60.0  # from SIGTERM to SIGKILL


def open_device(name: str) -> tuple[int, str]:
    """Return a descriptor of a new network device in the present namespace, and its name."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    found = fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return descriptor, found[:16].rstrip(b"\0").decode()


def bring_up(name: str, address: str = "") -> None:
    """Give a device of the present namespace an address in a network of four, and switch it on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:

        def change(what: int, value: bytes) -> None:
            fcntl.ioctl(control, what, struct.pack("16s24s", name.encode(), value))

        for what, text in ((SIOCSIFADDR, address), (SIOCSIFNETMASK, "255.255.255.252")) if address else ():
            change(what, struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(text)))
        change(SIOCSIFFLAGS, struct.pack("H", IFF_UP))


def repeat_early(name: str, address: str) -> None:
    """Have TCP repeat lost packets early on the route of a device, as `ip route change ... rto_min 50ms` does."""

    def attribute(kind: int, value: bytes) -> bytes:
        return struct.pack("HH", 4 + len(value), kind) + value

    own = socket.inet_aton(address)
    network = own[:3] + bytes([own[3] & 0b11111100])  # of four addresses
    body = struct.pack("8BI", socket.AF_INET, 30, 0, 0, *OF_ADDRESSES, 0)
    body += attribute(RTA_DST, network) + attribute(RTA_PREFSRC, own)
    body += attribute(RTA_OIF, struct.pack("I", socket.if_nametoindex(name)))
    metrics = (RTAX_LOCK, 1 << RTAX_RTO_MIN), (RTAX_RTO_MIN, REPEATED_AFTER)  # TCP ignores one that is not locked
    body += attribute(RTA_METRICS, b"".join(attribute(kind, struct.pack("I", value)) for kind, value in metrics))
    head = struct.pack("IHHII", 16 + len(body), RTM_NEWROUTE, REQUEST | ACKNOWLEDGE | REPLACE | CREATE, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE) as kernel:
        kernel.bind((0, 0))
        kernel.send(head + body)
        (error,) = struct.unpack_from("i", kernel.recv(4096), 16)
    if error:
        raise OSError(-error, f"the route of {name} cannot be changed")


class Link:
    """The packets between two devices."""

    def __init__(self, outside: str, inside: str) -> None:
        """Make both devices, and enter the namespace of the inner one."""
        first, name = open_device("petrov%d")
        bring_up(name, outside)
        repeat_early(name, outside)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "a network namespace cannot be made")
        second, name = open_device("node%d")
        bring_up("lo")
        bring_up(name, inside)
        repeat_early(name, inside)
        self.other = {first: second, second: first}
        self.loss, self.delay, self.up = 0.0, 0.0, True
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._numbers = count()
        self._chance = random.Random(0)  # noqa: S311  which packets are lost is no secret

    def take(self, descriptor: int) -> None:
        """Take what has arrived from one end, and send it to the other, now or later, or lose it."""
        for _ in range(TURN_PACKETS):
            try:
                packet = os.read(descriptor, PACKET_BYTES)
            except BlockingIOError:
                return
            if not self.up or (self.loss and self._chance.random() < self.loss):
                continue
            due = time.monotonic() + self.delay / 2
            heapq.heappush(self._waiting, (due, next(self._numbers), self.other[descriptor], packet))
            self.send()

    def send(self) -> float | None:
        """Send what is due; return the seconds until the next packet is, None without one."""
        while self._waiting:
            left = self._waiting[0][0] - time.monotonic()
            if left > 0:
                return left
            *_, target, packet = heapq.heappop(self._waiting)
            with contextlib.suppress(OSError):  # a full queue loses a packet, as elsewhere
                os.write(target, packet)
        return None


class Program:
    """A program that can be started again; it is killed if this process ends."""

    def __init__(self, command: list[str], log: str) -> None:
        self._command, self._log, self._prctl = command, log, ctypes.CDLL(None).prctl
        self.start()

    def start(self) -> None:
        with open(self._log, "ab") as log:  # noqa: PTH123  starts in 20 ms, without pathlib
            self.process = subprocess.Popen(  # noqa: S603  the starter's own command
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: self._prctl(PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509  one thread
            )

    def signal(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)


def run(options: dict[str, Any]) -> None:
    """Run the program until the input ends, and then until it ends."""
    link = Link(*options["network"]) if options.get("network") else None
    program = Program(options["command"], options["log"])
    poll, received, end = select.poll(), b"", float("inf")
    for descriptor in (sys.stdin.fileno(), *(link.other if link else ())):
        poll.register(descriptor, select.POLLIN)
    while True:
        left = link.send() if link else None
        for descriptor, _ in poll.poll(min(250.0, 250.0 if left is None else 1000 * left + 0.5)):
            if descriptor != sys.stdin.fileno():
                if link:
                    link.take(descriptor)
                continue
            chunk = os.read(descriptor, PACKET_BYTES)
            if not chunk:
                poll.unregister(descriptor)
                end = time.monotonic() + GRACE_SECONDS
                program.signal(signal.SIGCONT)
                program.signal(signal.SIGTERM)
            *lines, received = (received + chunk).split(b"\n")
            for line in lines:
                obey(json.loads(line), program, link)
        if program.process.poll() is not None and end < float("inf"):
            return
        if time.monotonic() > end:
            program.signal(signal.SIGKILL)


def obey(order: dict[str, Any], program: Program, link: Link | None) -> None:
    """Do what a line of the input says."""
    if link is not None:
        link.loss, link.delay = order.get("loss", link.loss), order.get("delay", link.delay)
        link.up = order.get("up", link.up)
    if "signal" in order:
        program.signal(order["signal"])
    if order.get("start"):
        program.process.wait()
        program.start()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the starter decides
    run(json.loads(sys.argv[1]))
