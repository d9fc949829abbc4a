"""The storage steps are all there are: nothing beside them changes files, or the crash matrix would not kill there."""

import ast
from collections.abc import Iterator
from pathlib import Path

import laminar_delta.engine

ENGINE = Path(laminar_delta.engine.__file__).parent
ENUMERATED = {"local/durability.py", "deltars/upkeep.py", "local/lock.py"}
"""Whose functions `laminar_delta/testing/steps.py` makes steps of, one by one."""
CHANGES = {
    *("unlink", "rmdir", "rmtree", "rename", "renames", "link", "link_to", "hardlink_to", "symlink", "symlink_to"),
    *("write_text", "write_bytes", "touch", "truncate", "ftruncate", "mkdir", "makedirs", "mkdtemp", "remove"),
    *("open_output_stream", "delete_file", "copy", "copy2", "copyfile", "copytree", "move"),
}
KNOWN = {
    ("embedded/engine.py", "drop_ahead", "unlink"): "a step of the contract itself",
    ("embedded/engine.py", "drop_ahead", "delete_file"): "the same, on an object store",
    ("embedded/payloads.py", "_write", "open_output_stream"): "data files that no log names yet, within a step",
    ("embedded/payloads.py", "_write", "delete_file"): "the same, half written",
    ("deltars/around.py", "open", "mkdtemp"): "a directory of links elsewhere, to read",
    ("deltars/around.py", "open", "mkdir"): "the same",
    ("deltars/around.py", "open", "symlink_to"): "the same",
    ("deltars/around.py", "open", "rmtree"): "the same, once it is not needed",
    ("deltars/looking.py", "refused", "symlink_to"): "a table elsewhere, of a file that is looked at",
}


def test_nothing_beside_the_steps_changes_files() -> None:
    found = {
        (place, function, call)
        for path in sorted(ENGINE.rglob("*.py"))
        if (place := path.relative_to(ENGINE).as_posix()) not in ENUMERATED
        for function, call in _changes(ast.parse(path.read_text()))
    }
    assert found == set(KNOWN)


def test_a_new_function_that_changes_files_would_be_seen() -> None:
    for line in (
        "path.rename(other)",
        "os.replace(a, b)",
        "shutil.rmtree(place)",
        "atexit.register(shutil.rmtree, place)",
        "open(path, 'w')",
        "path.open(mode='ab')",
        "os.open(path, os.O_WRONLY | os.O_CREAT)",
        "open(path, mode)",
    ):
        assert list(_changes(ast.parse(f"def leak():\n    {line}"))), line
    for line in (
        "open(path)",
        "path.open('rb')",
        "os.open(path, os.O_RDONLY)",
        "text.replace(a, b)",
        "self.open(table)",
    ):
        assert not list(_changes(ast.parse(f"def look():\n    {line}"))), line


def _changes(tree: ast.AST, function: str = "") -> Iterator[tuple[str, str]]:
    """Each use of what changes files, with the function it is in."""
    for node in ast.iter_child_nodes(tree):
        inner = node.name if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
        # Also where it is handed to somebody who calls it.
        if isinstance(node, ast.Attribute) and (node.attr in CHANGES or ast.unparse(node) == "os.replace"):
            yield inner, node.attr
        if isinstance(node, ast.Call) and _opens_to_write(node):
            yield inner, "open"
        yield from _changes(node, inner)


def _opens_to_write(call: ast.Call) -> bool:
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    called = ast.unparse(call.func)
    if called == "os.open":
        return ast.unparse(call.args[1]) != "os.O_RDONLY"
    if called == "open":
        mode = named.get("mode", call.args[1] if len(call.args) > 1 else None)
    elif called.endswith(".open") and (len(call.args) <= 1 or "mode" in named):
        mode = named.get("mode", call.args[0] if call.args else None)
        if not isinstance(mode, ast.Constant) or set(str(mode.value)) - set("rwaxbt+"):
            return False  # what is opened by that is no file
    else:
        return False
    if mode is None:
        return False
    return not isinstance(mode, ast.Constant) or bool(set(str(mode.value)) & set("wax+"))
