"""Training logs of others: one loss with its steps, from CSV, JSON, JSON lines, TensorBoard's event files and text.

Nothing in a file is executed. A file is read as rows of named numbers; the columns of the loss, the step and the
learning rate are chosen by their names, and what was chosen, and what else there is, is reported.
"""

import io
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from saddlescope._shared.errors import InputError, MissingExtraError
from saddlescope._shared.json_text import parse_json
from saddlescope._shared.output_paths import other_than_file

_MOST_BYTES = 2**30
_MOST_COLUMNS = 2000
_NAMED = 12  # columns in a sentence
_RATE_JUMP = 1.25  # factor between the learning rates of two records
_NUMBER = (
    r"[-+]?(?:\d+(?:[,_]\d+)*\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|NaN|inf)"
    r"(?![\d.]*[A-Za-z_]*(?:\d|:\d))"  # no part of a time of day, a version, or a longer number
)
_WORD = r"[A-Za-z_][\w./-]{0,60}+(?:'s\b)?(?:\(\w{1,20}\))?"
_PAIR = re.compile(
    rf"(?<![\w./-])((?:{_WORD} )?{_WORD})[\"']?\s*+"
    rf"(?:[:=]\s*+|(?<=\s)|(?=\[\s*+\d+(?:/|\] [A-Za-z])))[\[\"'(]?\s*+({_NUMBER})"  # Epoch[1] Iteration[10/90]
)
_GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}(?:(?:,\d{3})+|(?:_\d{3})+)(?:\.\d+)?")  # 1,000 and 1_000
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+(?:[eE][-+]?\d+)?")
_PROGRESS = re.compile(
    r"(?=[e\d])(?:epochs?\W{1,3}\d+/\d+|\d+/\d+(?:/\d+|,? \d\d:\d\d|\]\s*\[)"  # epochs of all; dates; [0/5][10/90]
    r"|(?<![\w,./])(\d{1,3}(?:,\d{3})+|\d+)/\s*\d)",
    re.I,
)
_COUNT = re.compile(r"\s*\[?\s*(\d+)[]:]\s")  # at the start of a line
_COLOUR, _CURSOR = re.compile(r"\x1b\[[\d;:]*m"), re.compile(r"\x1b\[[\d;?]*[A-HJKSTf]")
_LOSS = re.compile(
    r"loss|cross.?entropy|(?:^|[/_ .-])(?:ce|nll|mse|rmse|mae|error|cost|objective|perplexity|ppl)$", re.I
)
_NOT_LOSS = re.compile(r"loss.scale|__MIN$|__MAX$|wer$|best.*(?:step|epoch)|loss (?:step|epoch)$", re.I)
_HELD_OUT = re.compile(r"val|test|eval|dev|held", re.I)
_KIND = re.compile(r"(?=[ltve])(?:loss|train|(?<![\w/.-])(val|valid\w*|test|testing|eval\w*)(?![\w/.-]))", re.I)
_RATE = re.compile(r"(?:^|[/_ .-])(?:lr|learning.?rate)(?:$|[-/_ .])", re.I)
_STEPS = ("global_step", "step", "steps", "num_updates", "update", "updates", "iter", "iters", "iteration",
          "iterations", "it", "batch", "i", "up", "epoch", "epochs", "progress")  # fmt: skip
_VALUES = ("values", "value", "y")  # of the metric whose name a JSON object has
_EPOCHS = ("epoch", "epochs", "train")  # within which others may begin again; "Train: 0 [10/90]"
Columns = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class LossLog:
    """A loss of a log.

    Attributes:
        column: its name.
        step_column: name of the steps; "record" if they are counted.
        steps: (n,), not decreasing.
        losses: (n,), NaN where the log has none at a step.
        rates: (n,) learning rates, NaN where none is logged; None without such a column.
        others: names of the other columns that may be losses.
        remarks: sentences on how the file was read.
    """

    column: str
    step_column: str
    steps: np.ndarray
    losses: np.ndarray
    rates: np.ndarray | None
    others: tuple[str, ...]
    remarks: tuple[str, ...]

    def rate_change(self, begin: float, end: float) -> float | None:
        """Return the last step between two at which the learning rate jumps; None without one, or under a schedule."""
        if self.rates is None:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            jumps = np.abs(np.diff(np.log(self.rates))) > np.log(_RATE_JUMP)
        if np.mean(jumps) > 0.2:  # a schedule
            return None
        steps = self.steps[1:][jumps]
        steps = steps[(steps >= begin) & (steps <= end)]
        return float(steps[-1]) if len(steps) else None


def read_loss(path: Path, column: str | None = None) -> LossLog:
    """Read one loss from a log.

    Args:
        path: of the log; a folder of TensorBoard's event files.
        column: name of the loss; None: chosen by its name, a training loss first.

    Raises:
        InputError: the file is no log, is too large, or has no such column.
    """
    read = _read(path)
    columns = {name: values for name, values in read.items() if np.any(np.isfinite(values))}
    losses = [name for name in columns if _is_loss(name)]
    if column is None and not losses and (empty := [name for name in read if _is_loss(name)]):
        raise InputError(f"{path} has no finite value of {_listed(empty)}. Pass --column with another column's name.")
    if not columns:
        raise InputError(f"{path} must be a log, such as a CSV with a header; got no pairs of name and number.")
    if column is not None:
        chosen = _named(path, column, columns)
    elif losses:
        most = max(np.sum(np.isfinite(columns[name])) for name in losses)
        dense = [name for name in losses if 2 * np.sum(np.isfinite(columns[name])) > most]
        chosen = min(dense, key=_distance_from_training_loss)
    else:
        rest = [name for name in columns if _last_word(name) not in _STEPS and not _RATE.search(name)]
        if len(rest) != 1:
            raise InputError(f"{path} has no column named as a loss. Pass --column with one of {_listed(columns)}.")
        chosen = rest[0]
    return _loss_of(columns, chosen, tuple(name for name in losses if name != chosen))


def _is_loss(name: str) -> bool:
    return bool(_LOSS.search(name)) and not _NOT_LOSS.search(name)


def _named(path: Path, column: str, columns: Columns) -> str:
    if column in columns:
        return column
    alike = [name for name in columns if re.sub(r"\W|_", "", name).lower() == re.sub(r"\W|_", "", column).lower()]
    if len(alike) != 1:
        raise InputError(f"{path} has no column {column!r} with numbers. Pass one of {_listed(columns)}.")
    return alike[0]


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(map(repr, names[:_NAMED])) + more


def _distance_from_training_loss(name: str) -> tuple[bool, bool, bool, int]:
    return (
        bool(_HELD_OUT.search(name)),
        "loss" not in name.lower(),
        not re.search("^loss$|total|train", name, re.I),
        len(name),
    )


def _last_word(name: str) -> str:
    words = re.sub(r"([a-z])([A-Z])", r"\1_\2", name.partition("(")[0].rstrip(" .")).lower()
    match = re.search(r"(global_step|num_updates)$", words)
    return match.group(1) if match else re.split(r"[/_ .-]", words)[-1]


def _loss_of(columns: Columns, chosen: str, others: tuple[str, ...]) -> LossLog:
    """Return the loss with the steps of its rows, of the longest run."""
    remarks: list[str] = []
    there = np.isfinite(columns[chosen]) | (np.isinf(columns[chosen]))
    rows = np.flatnonzero(there)
    loss, after = columns[chosen][rows], len(there) - 1 - rows[-1]
    if after > np.max(np.diff(rows), initial=1):
        remarks.append(f"The last {after} rows have no number for {chosen}: the run may have diverged.")
    step_column, steps = _steps_of(columns, chosen, rows, remarks)
    rates = next((columns[name] for name in columns if _RATE.search(name) and name != chosen), None)
    if rates is not None:
        rates = _carried(rates)[rows]
    kept = np.isfinite(steps)
    order = np.flatnonzero(kept)[_longest_run(steps[kept], remarks)]
    return LossLog(
        chosen, step_column, steps[order], loss[order], None if rates is None else rates[order], others, tuple(remarks)
    )


def _steps_of(columns: Columns, chosen: str, rows: np.ndarray, remarks: list[str]) -> tuple[str, np.ndarray]:
    """Return the name and the steps: of the finest column in the rows of the loss, else carried from rows before."""
    prefix = re.split(r"[/_ .-]", chosen)[0]
    names = [name for name in columns if _last_word(name) in _STEPS and name != chosen and not _is_loss(name)]
    names.sort(key=lambda name: (not name.startswith(prefix), _STEPS.index(_last_word(name))))
    epochs = {name: columns[name] for name in columns if _last_word(name) in _EPOCHS and not _is_loss(name)}
    epochs = {name: np.nan_to_num(_carried(values), nan=np.nanmin(values) - 1)[rows] for name, values in epochs.items()}
    found = []
    for carried in (False, True):
        for name in names:
            steps = (_carried(columns[name]) if carried else columns[name])[rows]
            if np.mean(np.isfinite(steps)) > 0.9:
                found.append(_over_epochs(name, steps, epochs))
    step_column, steps = max(found, key=lambda one: min(_advance(one[1]), 0.5 * len(rows)), default=("", rows[:0]))
    if _advance(steps) == 0:
        remarks.append("No column was understood as steps: records are counted.")
        return "record", np.arange(float(len(rows)))
    name, over, epoch = step_column.partition(" over ")
    if over:
        remarks.append(f"{name} begins again with each {epoch}: steps are counted over all of them.")
    return step_column, steps


def _advance(steps: np.ndarray) -> int:
    """Return how many more records go on than back, or the reverse: about 0 for what counts no steps."""
    return abs(int(np.sum(np.sign(np.nan_to_num(np.diff(steps))))))


def _over_epochs(name: str, steps: np.ndarray, epochs: Columns) -> tuple[str, np.ndarray]:
    """Return the name and the steps, counted over all epochs if they fall where an epoch rises."""
    gaps = np.diff(steps)
    for epoch, values in epochs.items():
        rises = np.diff(values) > 0
        if 2 * np.sum(rises & (gaps < 0)) > np.sum(rises | (gaps < 0)) and np.any(gaps > 0):
            length = np.nanmax(steps) - np.nanmin(steps) + np.median(gaps[gaps > 0])
            return f"{name} over {epoch}", (values - (np.min(values) == 1)) * length + steps
    return name, steps


def _carried(values: np.ndarray) -> np.ndarray:
    """Return values with gaps filled by the last one before."""
    last = np.maximum.accumulate(np.where(np.isfinite(values), np.arange(len(values)), -1))
    return np.where(last >= 0, values[np.maximum(last, 0)], np.nan)


def _longest_run(steps: np.ndarray, remarks: list[str]) -> np.ndarray:
    """Return the records of the longest run, in order: a step back to the start begins a run, another resumes it."""
    back = np.flatnonzero(np.diff(steps) < 0) + 1
    if len(back) > 0.05 * len(steps) + 5:
        remarks.append(f"Steps go back {len(back)} times: records are sorted by step.")
        return np.argsort(steps, kind="stable")
    runs, resumed = [np.arange(0)], 0
    for part in np.split(np.arange(len(steps)), back):
        run = runs[-1]
        if len(run) and steps[part[0]] > steps[run[0]] + 0.05 * (steps[run[-1]] - steps[run[0]]):
            resumed += 1  # what the new part repeats is replaced
            runs[-1] = np.concatenate([run[steps[run] < steps[part[0]]], part])
        else:
            runs.append(part)
    longest = max(runs, key=len)
    if resumed:
        remarks.append(f"The run was resumed {resumed} times from an earlier step: repeated records are replaced.")
    if len(runs) > 2:
        lengths = ", ".join(str(len(run)) for run in runs[1:][:_NAMED])
        remarks.append(f"Steps begin again: {len(runs) - 1} runs of {lengths} records; the longest one is shown.")
    return longest


def _read(path: Path) -> Columns:
    if path.is_dir() or "tfevents" in path.name:
        return _tensorboard(path)
    if not path.exists():
        raise InputError(f"There is no file {path}. Name a log, such as metrics.csv.")
    if (kind := other_than_file(path)) is not None:
        raise InputError(f"{path} must be a log file; got {kind}.")
    if path.stat().st_size > _MOST_BYTES:
        raise InputError(f"{path} is larger than {_MOST_BYTES >> 30} GiB. Extract the loss and its steps first.")
    content = path.read_bytes()
    if not content.strip():
        raise InputError(f"{path} is empty. Name a log with records.")
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = content.decode("utf-16", errors="replace")
    elif b"\0" in content[: 1 << 16]:
        raise InputError(f"{path} is binary. Name a log in text: CSV, JSON, or lines with names and values.")
    else:
        text = content.decode("utf-8-sig", errors="replace")
    del content
    text = _CURSOR.sub("\n", _COLOUR.sub("", text)) if "\x1b" in text else text
    head = text.lstrip()[:1]
    if head in ("{", "["):
        return _json(text)
    table = _table(text)
    return _text(text) if table is None else table


def _json(text: str) -> Columns:
    try:
        value = parse_json(text)
    except ValueError:
        return _text(text)
    if isinstance(value, list) and value and all(isinstance(row, list) and len(row) > 1 for row in value):
        table = [[_float(one) if _is_number(one) else np.nan for one in column] for column in zip(*value, strict=False)]
        return _without_names(list(np.array(table)))
    return _columns(_records(value))


def _records(value: Any) -> Iterable[Any]:
    """Return the longest list of records, or the columns of equal length, nearest to the top of a JSON value.

    Columns of several objects, such as one per metric, become records of their own, in the order of their steps.
    """
    named = [("", value)]
    for _ in range(4):
        level = [one for _, one in named]
        tables = [(path, lists) for path, one in named if (lists := _lists(one))]
        counts = Counter(name for _, lists in tables for name in lists)
        if tables:
            rows = [row for path, lists in tables for row in _rows(path, lists, counts)]
            return sorted(rows, key=_step_in) if len(tables) > 1 else rows
        lists = [one for one in level if isinstance(one, list) and one and isinstance(one[0], dict)]
        if lists:
            return max(lists, key=len)
        if any(isinstance(one, list) and one and all(map(_is_number, one)) for one in level):
            numbers = max((one for one in level if isinstance(one, list)), key=len)
            return [{"value": one} for one in numbers]
        named = [(f"{path}{k}/", v) for path, one in named if isinstance(one, dict) for k, v in one.items()]
    return [value]


def _lists(value: Any) -> dict[str, list[Any]]:
    """Return the longest lists of numbers in an object by name."""
    lists = value.items() if isinstance(value, dict) else ()
    lists = {k: v for k, v in lists if isinstance(v, list) and v and _is_number(v[0])}
    longest = max(map(len, lists.values()), default=0)
    return {k: v for k, v in lists.items() if len(v) == longest}


def _rows(path: str, lists: dict[str, list[Any]], counts: Counter[str]) -> Iterator[dict[str, Any]]:
    """Yield the records of an object of lists; names that others have too, or that say nothing, follow its own."""
    names = ["step" if path and k == "x" else path[:-1] if path and k in _VALUES
             else path + k if counts[k] > 1 and k not in _STEPS else k for k in lists]  # fmt: skip
    for values in zip(*lists.values(), strict=True):
        yield dict(zip(names, values, strict=True))


def _step_in(row: dict[str, Any]) -> float:
    return next((_float(value) for name, value in row.items() if name in _STEPS and _is_number(value)), 0.0)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _flat(record: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in record.items() if isinstance(record, dict) else ():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}/")
        elif _is_number(value):
            yield f"{prefix}{name}", _float(value)
        elif isinstance(value, str):
            try:
                yield f"{prefix}{name}", float(value)
            except ValueError:
                continue
        elif isinstance(value, list) and value and name in _STEPS:  # epoch and iteration, as of DLLogger
            yield from _flat(dict(zip(["epoch", name][-len(value) :], value, strict=False)), prefix)


def _float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 308 digits
        return np.inf


def _columns(records: Iterable[Any]) -> Columns:
    """Return columns of equal length from rows of named numbers; NaN where a row has no such name."""
    values: dict[str, list[float]] = defaultdict(list)
    rows: dict[str, list[int]] = defaultdict(list)
    count = 0
    for record in records:
        for name, value in _flat(record):
            if name in values or len(values) < _MOST_COLUMNS:
                if rows[name] and rows[name][-1] == count:  # named twice in a row: the first counts
                    continue
                values[name].append(value)
                rows[name].append(count)
        count += 1
    columns = {}
    for name, given in values.items():
        columns[name] = np.full(count, np.nan)
        columns[name][rows[name]] = given
    return columns


def _text(text: str) -> Columns:
    """Return the columns of lines with names and values, or with a JSON record each."""
    samples: dict[str, list[str]] = defaultdict(list)
    for line in re.split(r"[\r\n]+", text[: 1 << 16]):
        for name, value in _PAIR.findall(line) if "{" not in line else ():
            samples[name.strip()].append(value)
    decimal = {name for name, values in samples.items() if _has_decimal_commas(name, values)}
    return _columns(_line_record(line, decimal) for line in re.split(r"[\r\n]+", text))


def _has_decimal_commas(name: str, values: Iterable[str]) -> bool:
    """Return True if the commas of a column of numbers stand for decimal points, False if they group digits.

    Raises:
        InputError: it is a loss, and both are possible, or neither.
    """
    values = [value for value in values if value]
    commas = [value for value in values if "," in value]
    grouped, decimal = (all(map(kind.fullmatch, commas)) for kind in (_GROUPED, _DECIMAL_COMMA))
    either = grouped and all(re.fullmatch(r"[-+]?\d{1,3},\d{3}", one) for one in values)
    if commas and _is_loss(name) and (either or not (grouped or decimal)):
        raise InputError(
            f"Numbers of {name} must be clear; got {commas[0]}, whose comma may group digits or be a decimal comma. "
            "Write the log with decimal points and without groups."
        )
    return decimal and not grouped and _last_word(name) not in _STEPS


def _plain(number: str, *, decimal: bool) -> str:
    """Return the text of a number in Python's notation; other texts do not change."""
    if decimal and _DECIMAL_COMMA.fullmatch(number):
        return number.replace(",", ".")
    return re.sub("[,_]", "", number) if _GROUPED.fullmatch(number) else number


def _line_record(line: str, decimal: Container[str]) -> dict[str, Any]:
    start, end = line.find("{"), line.rfind("}")
    if 0 <= start < end:
        try:
            record = parse_json(line[start : end + 1])
        except ValueError:
            pass
        else:
            return record if isinstance(record, dict) else {}
    found: dict[str, Any] = {}
    line = line[:4096]
    for given, value in _PAIR.findall(line):
        name = given.strip()
        plain = _plain(value, decimal=name in decimal) if "," in value or "_" in value else value
        found.setdefault(name, float(re.split("[,_]", plain)[0]))  # the first of a list
    count = _COUNT.match(line)
    if found and (progress := next(filter(None, _PROGRESS.findall(line)), count and count[1])):
        found.setdefault("progress", float(progress.replace(",", "")))
    kind = _KIND.search(line)  # the first word of a kind: if it is held out, so are losses without one
    if kind and kind[1] and not any(map(_HELD_OUT.search, filter(_is_loss, found))):
        found = {f"{kind[1]} {name}" if _is_loss(name) else name: value for name, value in found.items()}
    return found


def _table(text: str) -> Columns | None:
    """Return the columns of a table with one separator, with a header or of numbers alone; None for other text."""
    start = text[: 1 << 16].splitlines()
    if len(text) > 1 << 16:  # the last line is cut
        start = start[:-1] or text.splitlines()
    lines = [line for line in start if line.strip()][:50]
    head = lines[0].lstrip("# ").rstrip()
    body = [line for line in lines[1:] if not line.startswith("#")] or [head]
    for separator in (",", ";", "\t", r"\s+"):
        fields = [re.split(separator, line.strip()) for line in (head, *body)]
        width = len(fields[-1])
        numeric = np.mean([_numeric(field) for row in fields[1:] for field in row])
        if (
            (width > 1 or len(fields[0]) == 1)
            and numeric > 0.5
            and np.mean([len(r) == width for r in fields[1:]]) > 0.5
        ):
            break
    else:
        return None
    first = re.split(r",\s*|\s+" if lines[0].startswith("#") else separator, head)
    alike = [*map(_numeric, first)] == [*map(_numeric, fields[1])]  # no header is numeric where its columns are
    names = None if alike or all(map(_numeric, first)) else [name.strip().strip("\"'") for name in first]
    return _parsed(text, separator, names, width, skip=0 if names is None else text.find(lines[0]) + len(lines[0]))


def _numeric(field: str) -> bool:
    try:
        float(re.sub(r"(?<=\d),(?=\d)", ".", field.strip().strip("\"'"), count=1) or "nan")
    except ValueError:
        return False
    return True


def _numbers(name: str, column: Any) -> np.ndarray:
    """Return a column of pandas as numbers."""
    from pandas import to_numeric
    from pandas.api.types import is_numeric_dtype

    if not is_numeric_dtype(column):
        texts = [str(one).strip() for one in column]
        known = [one for one in texts if re.fullmatch(r"[-+\d.,eE]+", one)]
        if any("," in one for one in known):
            decimal = _has_decimal_commas(name, known)
            column = [_plain(one, decimal=decimal) for one in texts]
    return np.asarray(to_numeric(column, errors="coerce"), float)


def _parsed(text: str, separator: str, names: list[str] | None, width: int, skip: int) -> Columns:
    from pandas import read_csv  # comes with xarray

    frame = read_csv(
        io.StringIO(text[skip:]), sep=separator, header=None, names=range(max(width, len(names or ()))),
        index_col=False, comment="#", on_bad_lines="skip", skipinitialspace=True, low_memory=False,
    )  # fmt: skip
    titles = [*(names or ()), *("" for _ in frame.columns)]
    table = [_numbers(titles[k], frame[k]) for k in frame.columns[:_MOST_COLUMNS]]
    if names is None:
        return _without_names(table)
    if len(names) < width:  # vectors of losses under one name, as DeepXDE writes them: step, train, test, metrics
        terms = (width - 1) // 2
        parts = {"loss_train": table[1 : 1 + terms], "loss_test": table[1 + terms : 1 + 2 * terms]}
        if set(parts) <= set(names):
            return {names[0]: table[0]} | {name: np.sum(part, axis=0) for name, part in parts.items()}
        names = [*names, *(f"column {k + 1}" for k in range(len(names), width))]
    names = [name if name not in names[:k] else f"{name} (column {k + 1})" for k, name in enumerate(names)]
    return dict(zip(names, table, strict=False))


def _without_names(table: Sequence[np.ndarray]) -> Columns:
    """Return columns by numbers, those of whole numbers that grow as steps: the smallest first, times are larger."""
    counts = [
        k for k, one in enumerate(table)
        if min(len(table), len(one)) > 1 and np.all(one == np.round(one)) and np.mean(one[1:] > one[:-1]) > 0.9
    ]  # fmt: skip
    counts.sort(key=lambda k: table[k][-1])
    kinds = {k: "progress" if at else "step" for at, k in enumerate(counts)}
    return {f"{kinds[k]} (column {k + 1})" if k in kinds else f"column {k + 1}": one for k, one in enumerate(table)}


def _tensorboard(path: Path) -> Columns:
    """Return the scalars of event files; several folders are several runs, with their names."""
    files = sorted(path.rglob("*tfevents*")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path} has no event files of TensorBoard. Name a log file, or the folder of a run.")
    try:
        from tensorboard.backend.event_processing.event_accumulator import (
            STORE_EVERYTHING_SIZE_GUIDANCE,
            EventAccumulator,
        )
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError as error:
        raise MissingExtraError("Reading event files", "TensorBoard", "tensorboard") from error
    folders = sorted({file.parent for file in files}) if path.is_dir() else [path]
    columns: Columns = {}
    records: list[dict[str, float]] = []
    for folder in folders:
        prefix = f"{folder.relative_to(path)}/" if path.is_dir() and folder != path else ""
        events = EventAccumulator(str(folder), {**STORE_EVERYTHING_SIZE_GUIDANCE, "images": 1, "audio": 1})
        events.Reload()
        tags = events.Tags()
        for tag in tags["scalars"]:
            records += [{"step": event.step, prefix + tag: event.value} for event in events.Scalars(tag)]
        for tag in tags["tensors"]:
            for event in events.Tensors(tag):
                value = make_ndarray(event.tensor_proto)
                if value.size == 1 and np.issubdtype(value.dtype, np.floating):
                    records.append({"step": event.step, prefix + tag: float(value.reshape(()))})
    columns = _columns(records)
    if not columns:
        raise InputError(f"{path} has no scalars. Name the event file of a run that logs its loss.")
    return columns
