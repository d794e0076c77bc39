import asyncio, contextlib, secrets
from dataclasses import replace
from pathlib import Path
from holdfast.agents.base import Brief, Place
from holdfast.agents.conformance import Harness
from holdfast.agents.conformance.harness import Wishes
from holdfast.agents.permissions import parse
from holdfast.drivers.base import Limits
from holdfast.errors import FileMissing, HoldfastError
from holdfast.protocol.models import Model, Wire
from holdfast.sessions.network import NetworkPolicy
from holdfast.sessions.sleep import PausedAs
from support.house import new
from support.scripted_harness import SETTINGS, open_service

class W(Wishes):
    def ask(self, question, options): return None
    def crash(self): return "run kill -9 $PPID"
    def hang(self): return "run kill -STOP $PPID"
    def noise(self): return "garbage"

class H(Harness):
    wishes = W()
    can_sleep = True
    def __init__(self, service, server, make, agent_name, model=Model("demo","demo-1",(Wire.CHAT,))):
        self.service=service; self.server=server; self.make=make; self.agent_name=agent_name
        self.session=None; self.extra=[]; self.n=0; self.model=model
    def make_agent(self): return self.make()
    async def _listen(self, sid):
        link = self.service._hub.get(sid) if hasattr(self.service,"_hub") else None
        live = await self.service.processes._usable(sid)
        link = live.link
        port = int(self.server.url.rsplit(":",1)[1])
        def take(reader, writer):
            async def pump(r,w):
                with contextlib.suppress(Exception):
                    while data := await r.read(65536):
                        w.write(data); await w.drain()
                with contextlib.suppress(Exception):
                    w.close()
            async def both():
                r2,w2 = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(pump(reader,w2), pump(r2,writer))
            t=asyncio.ensure_future(both()); self.tasks.add(t); t.add_done_callback(self.tasks.discard)
        link.take_callers("models", take)
        await link.call("listen", {"name":"models","port":9000}, timeout=10)
    tasks=set()
    async def new_session(self):
        if self.session is None:
            self.session = await new(self.service); self.extra.append(self.session)
            await self._listen(self.session)
            sid=self.session; self.taken=True
        elif self.busy:
            sid = await new(self.service); self.extra.append(sid); await self._listen(sid)
        else: sid=self.session
        self.busy=True
        self.n+=1; await self.service.files.mkdir(sid, f"/workspace/t{self.n}", parents=True, mode=0o755)
        return Place(sid, self.service, brief=Brief(models=[self.model], system_prompt="Be brief."))
    busy=False
    def home(self, place): return f"/workspace/t{self.n}"
    async def write_file(self, place, path, data): await self.service.write_file(place.session_id, path, data, mode=None)
    async def read_file(self, place, path):
        try: return (await self.service.read_file(place.session_id, path, max_bytes=None))[0]
        except FileMissing: return None
    async def kill_agent(self, place):
        from holdfast.agents.supervisor import Supervisor
        found = await Supervisor(self.agent_name).find(place)
        assert found and found.view.running
        await self.service.processes.signal(place.session_id, found.view.process_id, "KILL")
        assert not (await self.service.processes.get(place.session_id, found.view.process_id, wait_ms=10_000)).running
    async def lose_sessions(self, place):
        from holdfast.agents.supervisor.home import root
        await self.service.files.remove(place.session_id, f"{await root(place)}/{self.agent_name}", recursive=True)
    async def sleep_and_wake(self, place):
        await self.service.pause(place.session_id, PausedAs.FILES)
        await self.service.wake(place.session_id)
        await self._listen(place.session_id)

@contextlib.asynccontextmanager
async def interim(root, driver, images, server, make, name):
    settings = replace(SETTINGS, default_image="host", default_network=NetworkPolicy.NONE, default_limits=Limits(cpus=2, memory_mb=1536, pids=256, disk_mb=512))
    async with open_service(root, driver, images, settings) as service:
        h=H(service, server, make, name)
        try: yield h
        finally:
            for sid in h.extra:
                with contextlib.suppress(HoldfastError): await service.destroy(sid)
