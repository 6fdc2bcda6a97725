"""Listing and choosing input devices, through sounddevice."""

from types import ModuleType
from typing import NamedTuple

from asrkit.audio.file import AudioError
from asrkit.extras import pip_install


class Device(NamedTuple):
    number: int
    name: str
    system: str  # ALSA, Core Audio, Windows WASAPI, …: several may list the same device
    channels: int
    sample_rate: int  # Hz, the device's default
    is_default: bool


def sound_library() -> ModuleType:
    """The module sounddevice.

    Raises:
        AudioError: if sounddevice or PortAudio, which it calls, is not installed.
    """
    try:
        import sounddevice
    except ImportError:
        command = pip_install("sounddevice")
        raise AudioError(f"the microphone needs sounddevice: {command}") from None
    except OSError as error:
        raise AudioError(f"the microphone needs PortAudio (libportaudio2): {error}") from None
    return sounddevice


def input_devices() -> list[Device]:
    """All devices that record."""
    sounddevice = sound_library()
    systems = [system["name"] for system in sounddevice.query_hostapis()]
    default = sounddevice.default.device[0]
    return [
        Device(
            number, device["name"], systems[device["hostapi"]], device["max_input_channels"],
            int(device["default_samplerate"]), number == default,
        )
        for number, device in enumerate(sounddevice.query_devices())
        if device["max_input_channels"] > 0
    ]  # fmt: skip


def find_device(wanted: str | None) -> Device:
    """The input device of this number or (part of a) name; the default device for None.

    Raises:
        AudioError: if no device, or more than one, matches; the message lists the devices.
    """
    devices = input_devices()
    if not devices:
        raise AudioError(NONE)
    if wanted is None:
        found = [device for device in devices if device.is_default]
        problem = "there is no default microphone: choose one by its number or name"
    elif wanted.isdecimal():
        found = [device for device in devices if device.number == int(wanted)]
        problem = f"no microphone has the number {wanted}"
    else:
        found = by_name(devices, wanted)
        problem = f"no microphone's name has {wanted!r} in it"
    if len(found) > 1:
        problem, devices = f"{wanted!r} may be any of {len(found)} microphones: say which", found
    if len(found) != 1:
        raise AudioError(f"{problem}\n{table(devices)}")
    return found[0]


def by_name(devices: list[Device], wanted: str) -> list[Device]:
    """Devices of exactly this name or "name, system"; if none, those that have it in theirs."""
    wanted = wanted.casefold()
    names = {device: f"{device.name}, {device.system}".casefold() for device in devices}
    exact = [each for each in devices if wanted in (each.name.casefold(), names[each])]
    return exact or [each for each in devices if wanted in names[each]]


NONE = (
    "this computer has no microphone that PortAudio finds: is one plugged in, "
    "and may this user and this program use it?"
)


def table(devices: list[Device]) -> str:
    """The devices, one a line; the default is marked with *."""
    if not devices:
        return NONE
    size = max(len("name"), *(len(device.name) for device in devices))
    lines = [f"  number  {'name':{size}}  channels  rate in Hz  system"]
    lines += [
        f"{'*' if d.is_default else ' '} {d.number:6}  {d.name:{size}}  {d.channels:8}"
        f"  {d.sample_rate:10}  {d.system}"
        for d in devices
    ]
    return "\n".join(lines)
