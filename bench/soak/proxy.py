"""A proxy for TCP on loopback that cuts connections and lets some of them stall."""

import asyncio
import random
import socket
import struct
import threading


class Proxy:
    """Forwards connections to a port. Each lives for a random time, and is then cut: half of them with a reset. Some stall first."""

    def __init__(self, to, mean_life_s, stalled, seed):
        self.to, self.mean_life_s, self.stalled = to, mean_life_s, stalled
        self.random = random.Random(seed)
        self.opened = self.cut = self.stalls = self.refused = 0
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        threading.Thread(target=self._run, args=(ready,), daemon=True).start()
        ready.wait()

    def _run(self, ready):
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self.loop.run_forever()

    async def _serve(self, reader, writer):
        self.opened += 1
        try:
            up = await asyncio.open_connection("127.0.0.1", self.to)
        except OSError:
            self.refused += 1
            writer.close()
            return
        stall = self.random.random() < self.stalled
        directions = [self._pump(reader, up[1], stall), self._pump(up[0], writer, False)]
        tasks = [asyncio.ensure_future(direction) for direction in directions]
        life = self.random.expovariate(1 / self.mean_life_s)
        _, pending = await asyncio.wait(tasks, timeout=life, return_when=asyncio.FIRST_COMPLETED)
        if len(pending) == 2:
            self.cut += 1
            if self.random.random() < 0.5:
                for end in (writer, up[1]):
                    linger = struct.pack("ii", 1, 0)
                    end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        for task in pending:
            task.cancel()
        for end in (writer, up[1]):
            end.close()

    async def _pump(self, reader, writer, stall):
        try:
            while data := await reader.read(16384):
                if stall:
                    stall = False
                    self.stalls += 1
                    # Half of what came is sent, and the rest much later.
                    writer.write(data[: len(data) // 2])
                    await writer.drain()
                    await asyncio.sleep(self.random.uniform(1, 6))
                    data = data[len(data) // 2 :]
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
