"""`ilr anchors`: the models of equal cost to measure a schedule against, and what whole sizes leave. No torch."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from ilr.accounting import cost
from ilr.anchors import KINDS, Anchor, anchor, can_be_widened, is_unrepeated
from ilr.config import DecoderConfig
from ilr.errors import InputError
from ilr.parser import CommandParser, fail, plain
from ilr.plan import SCHEDULE_EXAMPLES, SHARING_EXAMPLES, Plan, make_plan
from ilr.plan_command import read_option
from ilr.sweep.arms import changes
from ilr.sweep.report import text_table
from ilr.sweep.settings import Options, decoder_of, flat, read_base


def main(argv: list[str]) -> int:
    """Run `ilr anchors`; its exit status."""
    try:
        _run(plain(_parser().parse_args(argv, defaults=False)))
    except InputError as error:
        fail(str(error))
    return 0
