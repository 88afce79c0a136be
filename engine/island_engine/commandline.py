"""Command lines that answer a slip with one sentence: what was wrong, and what was probably meant."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import select
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_CHOICE = re.compile(r"(.+): invalid choice: '(.+?)' \(choose from (.+)\)", re.DOTALL)
UNREAD = 141  # exit code of a program that writes to a reader who is gone, as shells have it: 128 + SIGPIPE
_NUMBERS = {"int": "a whole number", "float": "a number"}


class Parser(argparse.ArgumentParser):
    """argparse, whose sentence is not lost behind a page of usage and guesses at what was meant. Exit code 2."""

    given: Sequence[str] = ()  # what this parser was last asked to read
    commands: Mapping[str, Parser] = MappingProxyType({})

    def add_subparsers(self, **options: Any) -> Any:
        """As argparse's."""
        made = super().add_subparsers(**options)
        self.commands = made.choices
        return made

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As argparse's."""
        self.given = [*(sys.argv[1:] if args is None else args)]
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Say it and end."""
        self.exit(2, f"{self.prog}: {self._sentence(message.removeprefix('argument '))}\n")

    def _sentence(self, told: str) -> str:
        kind = told.partition(":")[0]
        if kind in {"unrecognized arguments", "the following arguments are required"}:
            asked = self.asked()
            how = f"use {asked.usage}" if asked.usage else f"{asked.prog} --help shows what it takes"
            flag, meant = self._slip()
            if kind == "unrecognized arguments":
                return f"{flag} is not a flag: did you mean {meant}?" if meant else f"{told}; {how}"
            # What looks like the missing flag may also be one that is passed on to another program.
            return f"{told}; did you mean that by {flag}?" if meant and meant in told else f"{told}; {how}"
        if match := _CHOICE.fullmatch(told):
            name, word, listed = match.groups()
            choices = re.findall(r"[^\s,']+", listed)
            meant = _close(word, choices, 0.6)
            return f"{name}: invalid choice: '{word}': {f'did you mean {meant}?' if meant else f'use {_or(choices)}'}"
        return re.sub(r"invalid (\w+) value: (.+)", lambda m: f"{m[2]} is not {_NUMBERS.get(m[1], m[1])}", told)

    def _slip(self) -> tuple[str, str | None]:
        """The first flag that nobody has, and the one that it begins or resembles."""
        known = {*self.flags()}
        own = self.given[: self.given.index("--")] if "--" in self.given else self.given
        for flag in (word.partition("=")[0] for word in own if word.startswith("--")):
            begun = (name for name in sorted(known) if name.startswith(flag))
            if flag not in known and (meant := _close(flag, known, 0.75) or next(begun, None)):
                return flag, meant
        return "", None

    def flags(self) -> Iterator[str]:
        """Its flags and those of its commands."""
        yield from self._option_string_actions
        for parser in self.commands.values():
            yield from parser.flags()

    def asked(self) -> Parser:
        """The parser of the command that was asked for, or itself."""
        return next((self.commands[word].asked() for word in self.given if word in self.commands), self)


def piped(command: Callable[[], int]) -> int:
    """The exit code of a command line whose reader may leave early, as `head` does: UNREAD then, without a traceback.
    BrokenPipeError of anything but standard output is a fault like others.
    """
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        look = select.poll()
        look.register(sys.stdout, 0)  # that nobody reads it is told unasked
        if not look.poll(0):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed at exit
        return UNREAD


def _close(word: str, known: Iterable[str], least: float) -> str | None:
    return next(iter(difflib.get_close_matches(word, [*known], 1, least)), None)


def _or(words: Sequence[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
