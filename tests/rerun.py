"""What failed among other tests is run once more, alone: a plugin of pytest that `.ci/run` loads with `-p tests.rerun`.

Each test that failed gets a process of its own, after all others have ended. If it passes there, it is unstable: its name and the last lines
of both outputs are printed, and its name is added to the file that the variable UNSTABLE names. The run passes if every test passed the first
or the second time. An error of collection, an interruption, an internal error, a run without tests and more than `MOST` failures stay what
they are: nothing is run again.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

MOST = 20
LINES = 15


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # in the process that hears of all results
        config.pluginmanager.register(Rerun(config))


class Rerun:
    def __init__(self, config):
        self.config, self.failed, self.collected = config, {}, True

    def pytest_collectreport(self, report):
        self.collected = self.collected and not report.failed

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.setdefault(report.nodeid, report.longreprtext)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session):
        result = yield  # the summary is printed, and the workers have ended
        if session.exitstatus == pytest.ExitCode.TESTS_FAILED and self.collected and self.failed:
            if len(self.failed) > MOST:
                self.say(f"{len(self.failed)} tests failed, more than {MOST}: none is run again")
                return result
            passed = [self.passes_alone(name) for name in self.failed]
            if all(passed):
                session.exitstatus = pytest.ExitCode.OK
        return result

    def passes_alone(self, name):
        command = [sys.executable, "-m", "pytest", "-n", "0", name]
        done = subprocess.run(
            command, cwd=self.config.rootpath, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        # A test that is skipped the second time has not passed.
        passed = done.returncode == 0 and re.search(r"^(=+ )?1 passed\b", done.stdout, re.M) is not None
        heading = f"{'UNSTABLE' if passed else 'FAILED TWICE'}: {name}"
        self.say(f"\n{heading}", "the first time, among others:", *last_lines(self.failed[name]))
        self.say("the second time, alone:", *last_lines(done.stdout))
        if passed and (kept := os.environ.get("UNSTABLE")):
            with Path(kept).open("a") as file:
                file.write(f"{heading}\n")
        return passed

    def say(self, *lines):
        writer = self.config.get_terminal_writer()
        for line in lines:
            writer.line(line)
        writer.flush()


def last_lines(text):
    return [f"    {line}" for line in text.rstrip().splitlines()[-LINES:]]
