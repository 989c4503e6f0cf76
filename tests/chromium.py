"""Pages as headless Chromium sees them, by its DevTools protocol."""

import asyncio
import json
import shutil
import subprocess
import urllib.request

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# what is wider than the window, unless something around it scrolls by itself
WIDER = """(() => {
  const root = document.documentElement;
  const bad = [...document.images].filter(i => !i.alt.trim() || !i.complete || !i.naturalWidth);
  return JSON.stringify({over: root.scrollWidth - root.clientWidth, images: document.images.length,
                         bad: bad.map(i => i.src.slice(0, 80))});
})()"""


def looks(pages, widths, profile, screenshots=None):
    """``{(page, width): {over, images, bad, errors, requests}}`` of html files.

    over : pixels by which the page is wider than the window; bad : images without a text or that
    did not load; errors : of console and network; requests : to anything but files
    """
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
               "--disable-dev-shm-usage", f"--user-data-dir={profile}"]  # fmt: skip
    process = subprocess.Popen([BROWSER, *options, "about:blank"], stderr=subprocess.PIPE,
                               stdout=subprocess.DEVNULL, text=True)  # fmt: skip
    try:
        for line in process.stderr:
            if "DevTools listening on" in line:
                port = line.split("ws://")[1].split("/")[0]
                break
        with urllib.request.urlopen(f"http://{port}/json") as answer:
            target = next(t for t in json.load(answer) if t["type"] == "page")
        return asyncio.run(_visit(target["webSocketDebuggerUrl"], pages, widths, screenshots))
    finally:
        process.terminate()
        process.wait(timeout=30)


async def _visit(address, pages, widths, screenshots):
    from tornado.websocket import websocket_connect

    socket = await websocket_connect(address, max_message_size=2**28)
    number, found = 0, {}
    errors, requests, loaded = [], [], False

    def heard(message):
        nonlocal loaded
        kind, given = message.get("method"), message.get("params", {})
        loaded |= kind == "Page.loadEventFired"
        if kind in ("Runtime.exceptionThrown", "Log.entryAdded", "Network.loadingFailed"):
            errors.append(json.dumps(given)[:300])
        if kind == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning"):
            errors.append(json.dumps(given)[:300])
        if kind == "Network.requestWillBeSent":
            requests.append(given["request"]["url"])

    async def ask(method, **given):
        nonlocal number
        number += 1
        await socket.write_message(json.dumps({"id": number, "method": method, "params": given}))
        while True:
            message = json.loads(await asyncio.wait_for(socket.read_message(), 60))
            if message.get("id") == number:
                return message["result"]
            heard(message)

    for domain in ("Page", "Runtime", "Log", "Network"):
        await ask(f"{domain}.enable")
    for width in widths:
        await ask("Emulation.setDeviceMetricsOverride", width=width, height=900,
                  deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        for page in pages:
            errors.clear(), requests.clear()
            loaded = False
            await ask("Page.navigate", url=page.as_uri())
            while not loaded:
                heard(json.loads(await asyncio.wait_for(socket.read_message(), 60)))
            # pictures that wait to be scrolled to
            await ask("Runtime.evaluate", expression="document.images.length && "
                      "[...document.images].forEach(i => i.loading = 'eager')")  # fmt: skip
            await ask("Runtime.evaluate", awaitPromise=True, expression="Promise.all("
                      "[...document.images].map(i => i.decode().catch(() => 0)))")  # fmt: skip
            seen = await ask("Runtime.evaluate", expression=WIDER)
            outside = [u for u in requests if not u.startswith(("file:", "data:"))]
            found[page.name, width] = json.loads(seen["result"]["value"]) | {
                "errors": list(errors), "requests": outside}  # fmt: skip
            if screenshots:
                import base64

                shot = await ask("Page.captureScreenshot", captureBeyondViewport=False)
                name = f"{page.stem}-{width}.png"
                (screenshots / name).write_bytes(base64.b64decode(shot["data"]))
    return found
