"""What the comparisons share: where the measured command is, and what each says of the machine that it ran on."""
import os
import platform

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMAND = os.path.join(ROOT, "build", "release", "bin", "anyaccel")


def processor():
    with open("/proc/cpuinfo") as file:
        fields = [line.split(":", 1) for line in file if ":" in line]
    of = {key.strip(): value.strip() for key, value in reversed(fields)}
    return f"{of.get('model name', platform.machine())}, family {of.get('cpu family')}, model {of.get('model')}"


def describe(loads):
    return {"system": platform.platform(), "processor": processor(), "processors": os.cpu_count(), "load": loads}
