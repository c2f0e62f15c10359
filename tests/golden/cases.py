"""Golden cases: one file each, read and laid out in a folder. README.md has the format."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent
_SECTION = "--- "


@dataclass
class Case:
    """What to run, and everything that must come out of it."""

    name: str
    title: str = ""
    program: str = ""
    inputs: dict[str, str] = field(default_factory=dict)
    """The texts of facts and changes files, by path."""
    epochs: list[str] = field(default_factory=list)
    expected: dict[str, str] = field(default_factory=dict)
    """The text of every file in the output folder, by path within it."""
    stdout: str = ""
    exit_code: int = 0
    errors: list[str] = field(default_factory=list)
    """Texts that must occur in standard error; it is empty if there are none."""

    @property
    def arguments(self) -> list[str]:
        """Return the command line, to be run in the folder of the case."""
        line = ["run", "program.dl", "-F", "facts", "-D", "out"]
        return [*line, "--epochs", "epochs"] if self.epochs else line

    def lay_out(self, folder: Path) -> None:
        """Write the program, the facts and the epochs."""
        (folder / "facts").mkdir()
        (folder / "program.dl").write_text(self.program, encoding="utf-8")
        for epoch in self.epochs:
            (folder / "epochs" / epoch).mkdir(parents=True, exist_ok=True)
        for path, text in self.inputs.items():
            data = text.encode()
            (folder / path).write_bytes(gzip.compress(data) if path.endswith(".gz") else data)


def case_files() -> list[Path]:
    """Return the files of all cases, in the order of their names."""
    return sorted(GOLDEN.glob("*/*.case"))


def read_case(path: Path) -> Case:
    """Return the case in a file; raise ValueError for what the format does not know."""
    case = Case(path.relative_to(GOLDEN).with_suffix("").as_posix())
    header, *sections = _sections(path.read_text(encoding="utf-8"))
    if not header[1].startswith("# title: "):
        raise ValueError(f"{path}: the first line must be `# title: ..`")
    case.title = header[1].removeprefix("# title: ").strip()
    for (kind, _, argument), text in ((head.partition(" "), text) for head, text in sections):
        match kind:
            case "program":
                case.program = text
            case "facts":
                file = argument if "." in argument else f"{argument}.facts"
                case.inputs[f"facts/{file}"] = text
            case "epoch":
                epoch, _, relation = argument.partition("/")
                case.epochs.append(epoch)
                if relation:
                    file = relation if "." in relation else f"{relation}.changes"
                    case.inputs[f"epochs/{epoch}/{file}"] = text
            case "expect":
                case.expected[argument] = text
            case "stdout":
                case.stdout = text
            case "error":
                case.exit_code = int(argument or 1)
                case.errors = [line.strip() for line in text.splitlines() if line.strip()]
            case _:
                raise ValueError(f"{path}: unknown section `{kind}`")
    if case.errors and (case.expected or case.stdout):
        raise ValueError(f"{path}: a run that fails writes nothing")
    return case


def read_output(folder: Path) -> dict[str, str]:
    """Return the text of every file below `folder`, unpacked, by path within it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            unpacked = gzip.decompress(data) if path.suffix == ".gz" else data
            found[path.relative_to(folder).as_posix()] = unpacked.decode("utf-8")
    return found


def _sections(text: str) -> list[tuple[str, str]]:
    """Return (head, text) of each section, the part before the first one included."""
    heads = [""]
    parts: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.startswith(_SECTION):
            heads.append(line.removeprefix(_SECTION).strip())
            parts.append([])
        else:
            parts[-1].append(line)
    # Blank lines before the next head are layout.
    texts = ["\n".join(lines).rstrip("\n") for lines in parts]
    return [(head, f"{text}\n" if text else "") for head, text in zip(heads, texts, strict=True)]
