"""The Jupyter kernel that notebooks run in: always the running interpreter's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["NAME", "environment", "own_kernel"]

NAME = "python3"
"""The kernel's name in every notebook."""


def environment() -> dict[str, str]:
    """Return the kernel's environment: this copy of the package, inline figures."""
    env = dict(os.environ)
    env.pop("MPLBACKEND", None)  # would take the place of the kernel's own inline backend
    env.setdefault("PYTHONHASHSEED", "0")  # sets of strings print in the same order
    here = Path(__file__).resolve().parents[1]
    if here.name not in ("site-packages", "dist-packages"):
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(here), env.get("PYTHONPATH")]))
    return env


@contextmanager
def own_kernel(folder: Path) -> Iterator[Any]:
    """Start the running interpreter's own kernel; shut it down at the end.

    The block starts while the kernel is still on its way up, so that what it
    imports (papermill) and the start take their time together.

    Parameters
    ----------
    folder : Path
        The kernel's working folder.

    Yields
    ------
    jupyter_client.AsyncKernelManager
        The manager of the kernel, for nbclient's argument ``km``.
    """
    import ipykernel.kernelspec  # noqa: F401  the native kernel below needs it
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from jupyter_core.utils import run_sync

    class OwnKernel(AsyncKernelManager):
        def client(self, **kwargs: Any) -> Any:
            self.last_client = super().client(**kwargs)
            return self.last_client

    # Without folders to search there is one kernel left: ipykernel's own.
    manager = OwnKernel(kernel_name=NAME, kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    run_sync(manager.start_kernel)(
        env=environment(),
        cwd=str(folder),
        # no history file; no remark about the unencrypted connection on this machine
        extra_arguments=["--HistoryManager.hist_file=:memory:", "--log-level=40"],
    )
    try:
        yield manager
    finally:
        # A dead kernel can't be asked to leave; it is only cleared away.
        alive = run_sync(manager.is_alive)()
        run_sync(manager.shutdown_kernel)(now=not alive)
        if hasattr(manager, "last_client"):
            manager.last_client.stop_channels()
