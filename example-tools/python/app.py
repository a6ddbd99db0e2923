# The class is named as the WIT interface is. A method whose function returns a `result` returns the
# value, or raises `Err` with the error. All imports stand here: modules are loaded while the
# component is built, none while it runs.

import csv
import io
import os
import re

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.reading import Cell, Cell_Empty, Cell_Number, Cell_Text, Separator

SEPARATORS = {Separator.COMMA: ",", Separator.SEMICOLON: ";", Separator.TAB: "\t"}
NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Reading(exports.Reading):
    def parse_table(self, table: str, separator: Separator) -> list[list[Cell]]:
        rows = csv.reader(io.StringIO(table, newline=""), delimiter=SEPARATORS[separator], strict=True)
        try:
            return [[cell(text) for text in row] for row in rows]
        except csv.Error as error:
            raise Err(f"line {rows.line_num}: {error}")

    def read_file(self, path: str) -> str:
        try:
            with open(path, encoding="utf-8", newline="") as file:
                return file.read()
        except OSError as error:
            raise Err(f"cannot read `{path}`: {error.strerror}")
        except ValueError as error:
            raise Err(f"cannot read `{path}`: {error}")

    def list_folder(self, path: str) -> list[str]:
        try:
            with os.scandir(path) as entries:
                return sorted(entry.name + "/" * entry.is_dir(follow_symlinks=False) for entry in entries)
        except OSError as error:
            raise Err(f"cannot list `{path}`: {error.strerror}")
        except ValueError as error:
            raise Err(f"cannot list `{path}`: {error}")


def cell(text: str) -> Cell:
    text = text.strip()
    if not text:
        return Cell_Empty()
    if NUMBER.fullmatch(text):
        return Cell_Number(float(text))
    return Cell_Text(text)
