"""Two network namespaces as hosts, whose packets take a while and sometimes get lost, as `tc netem` would have it where the kernel has that.

Each namespace has an interface whose packets come to this program, which hands them to the other one: TCP within the namespaces is the kernel's
own. `hosts.py BINARY everything|sequences NUMBER` runs the example `processes` of `crates/collective` on two ranks a host."""

import contextlib
import fcntl
import heapq
import itertools
import os
import pathlib
import random
import select
import shutil
import struct
import subprocess
import sys
import threading
import time

#: Of Linux's `if_tun.h`: make an interface, of packets, without a header before each.
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000

ADDRESSES = ["10.77.19.1", "10.77.19.2"]


def missing() -> str:
    """What this machine lacks for it; nothing where it can be."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "only root on Linux makes network namespaces"
    if not pathlib.Path("/dev/net/tun").exists() or shutil.which("ip") is None:
        return "neither without /dev/net/tun nor without ip"
    return ""


class Hosts:
    """`with Hosts(seconds, share) as hosts:` two hosts; packets are this late, and this share of them is lost."""

    def __init__(self, delay: float, loss: float, seed: int = 19):
        self.delay, self.loss, self.random = delay, loss, random.Random(seed)
        self.names = [f"openmps-{os.getpid()}-{host}" for host in range(2)]
        self.passed = self.lost = 0

    def __enter__(self) -> "Hosts":
        self.stack = contextlib.ExitStack()
        try:
            self.ends = [self.make(*it) for it in zip(self.names, ADDRESSES, strict=True)]
        except BaseException:
            self.stack.close()
            raise
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.carry, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.stack.close()

    def make(self, name: str, address: str) -> int:
        """A namespace and the descriptor of its interface."""
        end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        self.stack.callback(os.close, end)
        interface = f"omps{os.getpid() % 100_000}{address[-1]}"
        fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", interface.encode(), IFF_TUN | IFF_NO_PI))
        ip("netns", "add", name)
        self.stack.callback(ip, "netns", "del", name)
        ip("link", "set", interface, "netns", name)
        ip("-n", name, "addr", "add", f"{address}/24", "dev", interface)
        ip("-n", name, "link", "set", interface, "up")
        ip("-n", name, "link", "set", "lo", "up")
        return end

    def carry(self):
        """Hands packets over when their time has come."""
        waiting, order = [], itertools.count()
        while not self.over.is_set():
            most = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 0.1
            for end in select.select(self.ends, [], [], most)[0]:
                with contextlib.suppress(BlockingIOError):
                    packet = os.read(end, 1 << 16)
                    if self.random.random() < self.loss:
                        self.lost += 1
                        continue
                    heapq.heappush(waiting, (time.monotonic() + self.delay, next(order), self.ends[1 - self.ends.index(end)], packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, to, packet = heapq.heappop(waiting)
                # What there is no room for is lost, as on any line.
                with contextlib.suppress(OSError):
                    os.write(to, packet)
                    self.passed += 1

    def start(self, host: int, command: list[str], **options) -> subprocess.Popen:
        """A program on a host, which shares no memory with the other one."""
        own = ["sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh"]
        return subprocess.Popen(["ip", "netns", "exec", self.names[host], *own, *command], **options)


def ip(*arguments: str):
    subprocess.run(["ip", *arguments], check=True)


def main(binary: str, what: str, number: str) -> int:
    seed = random.randrange(1 << 32)
    with Hosts(0.001, 0.01) as hosts:
        ranks = []
        for rank in range(4):
            environment = {**os.environ, "OPENMPS_COLLECTIVE_ADDRESS": ADDRESSES[rank // 2]}
            command = [binary, "rank", f"{ADDRESSES[0]}:8200", str(rank), "4", what, number, str(seed)]
            ranks.append(hosts.start(rank // 2, command, env=environment))
        statuses = [rank.wait() for rank in ranks]
        print(f"{hosts.passed} packets, {hosts.lost} lost; ended with {statuses}")
    return max(map(abs, statuses))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
