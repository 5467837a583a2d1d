"""Building the engine for another machine than the one that builds: the device to build for, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orin_deploy.errors import OrinError, Refused, UsageError
from orin_deploy.facts.device import CrossCompiler, Device
from orin_deploy.intent.build_words import Values, option_text
from orin_deploy.intent.spec import Setting

NATIVE = "native"

# The newest symbols of the C and C++ libraries by L4T major release: Ubuntu 20.04, 22.04 and 24.04.
_LIBRARIES = {
    "35": (("GLIBC", "2.31"), ("GLIBCXX", "3.4.28")),
    "36": (("GLIBC", "2.35"), ("GLIBCXX", "3.4.30")),
    "38": (("GLIBC", "2.39"), ("GLIBCXX", "3.4.33")),
    "39": (("GLIBC", "2.39"), ("GLIBCXX", "3.4.33")),
}


def triplet(values: Mapping[str, Setting]) -> str | None:
    """The triplet of build.toolchain, None for the machine's own compilers."""
    text = option_text(values, "build.toolchain", NATIVE)
    return None if text == NATIVE else text


def target(device: Device, here: Device, compiler: CrossCompiler | None, wanted: str) -> Device:
    """The device to build for, with the tools and the memory of this machine, which does the work.

    Raises OrinError where there is no compiler for it, UsageError where device and triplet do not belong together.
    """
    if compiler is None:
        package = f"g++-{wanted.replace('_', '-')}"
        raise OrinError(f"there is no compiler for {wanted} on this machine", f"sudo apt install {package}")
    if device.machine != compiler.machine:
        raise UsageError(
            f"{wanted} compiles for {compiler.machine}, and {device.assumed or 'this machine'} is {device.machine}",
            "name the board with --profile, or another build.toolchain",
        )
    tools = replace(here.toolchain, cc=compiler.cc, cxx=compiler.cxx, cuda=())
    return replace(device, toolchain=tools, memory=here.memory)


def refuse(values: Values, cuda: bool) -> None:
    """Raises Refused for what cannot be built for another machine."""
    if cuda:
        raise Refused(
            "a CUDA engine is not built for another machine: nvcc would need CUDA's libraries for that one",
            "--set build.cuda=off builds for its CPU alone; with CUDA, let `orin-deploy up` build on the board",
        )
    if option_text(values, "build.blas", "off") == "on":
        raise Refused("OpenBLAS is not built in for another machine: its library for that one is not here",
                      "--set build.blas=off")  # fmt: skip
    if option_text(values, "build.cmake.GGML_NATIVE", "off").lower() in ("on", "1", "true", "yes"):
        raise Refused(
            "GGML_NATIVE asks the CPU that builds, which is not the one that will run it",
            "leave it out: build.arm_arch is taken from the board's profile",
        )


def words(compiler: CrossCompiler) -> dict[str, str]:
    """The -D words that make cmake build for another machine."""
    return {
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": compiler.machine,
        "CMAKE_C_COMPILER": compiler.cc.path,
        "CMAKE_CXX_COMPILER": compiler.cxx.path,
    }


def libraries(device: Device) -> tuple[tuple[str, str], ...]:
    """What the device's C and C++ libraries can give; empty where its release is not known."""
    release = (device.jetson.l4t or "") if device.jetson else ""
    return _LIBRARIES.get(release.partition(".")[0], ())
