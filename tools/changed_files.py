"""Which files the last commits have changed, for checks of the source that take minutes over all files."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMITS = 10
HOURS = 3


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def changed_files(folders, *options):
    """Returns the files in `folders` that the last commits have changed, and those of the working tree that are changed or new. The last
    commits are those of the three hours before the newest one, so that everything that was pushed together is checked, but at least ten.
    None where there is no history of as many commits. `options` are those of git diff."""
    try:
        base = git("rev-parse", "-q", "--verify", f"HEAD~{COMMITS}")
    except (subprocess.CalledProcessError, FileNotFoundError):
        return None
    # Not the hours before now: an older commit that is checked out is checked in the same way whenever it is.
    newest = int(git("log", "-1", "--format=%ct", "HEAD"))
    # A history that is younger than this has no such commit, and its first one is used.
    before = git("rev-list", "-1", f"--before={newest - HOURS * 3600}", "HEAD") or git("rev-list", "--max-parents=0", "HEAD").split()[-1]
    if int(git("rev-list", "--count", f"{before}..HEAD")) > COMMITS:
        base = before
    changed = git("diff", "--name-only", "-M", *options, base, "--", *folders)
    return set(changed.split()) | set(git("ls-files", "--others", "--exclude-standard", "--", *folders).split())
