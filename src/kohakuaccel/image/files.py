"""Images on disk: one .npz whose arrays are the streams and whose `meta` entry is a JSON document. No pickle.

It decides the file format only.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kohakuaccel.diagnostics import Refusal, SourceLine
from kohakuaccel.image.model import Acks, EncodedProgram, Image
from kohakuaccel.machine import Unit

FORMAT = "kohaku-image"
VERSION = 1
_EPOCH = (1980, 1, 1, 0, 0, 0)


def save(image: Image, path: str | Path) -> None:
    """Write `image` to `path` (.npz). Equal images give equal files, byte for byte."""
    arrays: dict[str, NDArray[Any]] = {}
    units: list[Unit] = []

    def number_of(unit: Unit) -> int:
        if unit not in units:
            units.append(unit)
        return units.index(unit)

    stages: list[list[dict[str, Any]]] = []
    for s, stage in enumerate(image.stages):
        rows: list[dict[str, Any]] = []
        for p, program in enumerate(stage):
            key = f"s{s}p{p}"
            arrays[f"{key}_payloads"] = program.payloads
            arrays[f"{key}_passes"] = program.passes
            if program.sources is not None:
                arrays[f"{key}_sources"] = program.sources
            acks: list[list[int]] = []
            for a, (receiver, count) in enumerate(program.acks):
                total = count if isinstance(count, int) else -1
                if not isinstance(count, int):
                    arrays[f"{key}_acks{a}"] = count
                acks.append([number_of(receiver), total])
            rows.append({"unit": number_of(program.unit), "acks": acks})
        stages.append(rows)
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "machine": image.machine_name,
        "name": image.name,
        "units": [asdict(u) for u in units],
        "stages": stages,
        "sources": [[line.file, line.line, line.text] for line in image.sources],
    }
    text = json.dumps(meta, sort_keys=True).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in (("meta", np.frombuffer(text, np.uint8)), *sorted(arrays.items())):
            data = io.BytesIO()
            np.lib.format.write_array(data, np.ascontiguousarray(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _EPOCH), data.getvalue(), zipfile.ZIP_DEFLATED)


def load(path: str | Path) -> Image:
    """Read an image written by `save`. Refuses other files and other versions."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        meta: dict[str, Any] = json.loads(arrays["meta"].tobytes())
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        hint = "images are written by kohakuaccel.image.save and by kohaku plan --save"
        raise Refusal("not an image file", where=str(path), hint=hint) from error
    if meta.get("format") != FORMAT or meta.get("version") != VERSION:
        raise Refusal(
            "an image file of another version",
            where=str(path),
            got=f"{meta.get('format')} {meta.get('version')}",
            limit=f"{FORMAT} {VERSION}",
            hint="compile it again",
        )
    known = {f.name for f in fields(Unit)}
    units = [Unit(**{k: v for k, v in u.items() if k in known}) for u in meta["units"]]
    stages: list[tuple[EncodedProgram, ...]] = []
    for s, rows in enumerate(meta["stages"]):
        programs: list[EncodedProgram] = []
        for p, row in enumerate(rows):
            key = f"s{s}p{p}"
            acks: Acks = tuple(
                (units[unit], total if total >= 0 else arrays[f"{key}_acks{a}"])
                for a, (unit, total) in enumerate(row["acks"])
            )
            programs.append(
                EncodedProgram(
                    units[row["unit"]],
                    arrays[f"{key}_payloads"],
                    acks,
                    arrays.get(f"{key}_sources"),
                    arrays[f"{key}_passes"],
                )
            )
        stages.append(tuple(programs))
    sources = tuple(SourceLine(file, line, text) for file, line, text in meta["sources"])
    return Image(meta["machine"], tuple(stages), sources, meta["name"])
