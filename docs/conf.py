"""Sphinx: the reference comes from the docstrings of the modules and, where they are compiled, from the stubs."""

import ast
import importlib.metadata
import inspect
import re
from pathlib import Path

from sphinx import addnodes

import wsfast  # before autodoc: it would read a stub in place of a compiled module that is not imported yet
from wsfast._common.option_names import NOT_GIVEN

project = "wsfast"
author = "the wsfast authors"
release = importlib.metadata.version("wsfast")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
copybutton_exclude = ".linenos, .gp, .go"  # prompts and what programs print
copybutton_prompt_text = "$ "
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_extra_path = ["benchmark_report.html"]
html_title = f"wsfast {release}"
nitpicky = False
# Two clients have a ClientConnection, and a signature says no more than its name.
suppress_warnings = ["ref.python"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {"URLs": "URLs"}  # or a signature has it in full


def stub_signatures():
    """``WSTransport``, ``send`` -> its parameters and what it returns, as text."""
    signatures = {}
    for stub in Path(wsfast.__file__).parent.glob("_engine/**/*.pyi"):
        for cls in ast.parse(stub.read_text()).body:
            if isinstance(cls, ast.ClassDef):
                for method in cls.body:
                    if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        parameters = ast.unparse(method.args)
                        parameters = parameters.removeprefix("self, ").removeprefix("self")
                        signatures[cls.name, method.name] = f"({parameters})", ast.unparse(method.returns)
    return signatures


# A signature of more parameters than this is a wall.
_READABLE = 12


def parameters_of(function):
    """The parameters of a signature that is too long to be read in one piece; none of a shorter one."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    return parameters if len(parameters) > _READABLE else {}


def write_llms_txt(app, failure):
    """A list of all pages in Markdown, for programs that read (llmstxt.org), from the groups of the first page."""
    if failure or app.builder.name != "html":
        return
    lines = [
        f"# {project}",
        "",
        "> A fast WebSocket client for Python, and a supervisor.",
    ]
    for group in app.env.get_doctree("index").findall(addnodes.toctree):
        lines += ["", f"## {group['caption']}", ""]
        for _, page in group["entries"]:
            for name in (page, *app.env.toctree_includes.get(page, ())):
                lines.append(f"- [{app.env.titles[name].astext()}](_sources/{name}.md.txt)")
    Path(app.outdir, "llms.txt").write_text("\n".join(lines) + "\n")


def setup(app):
    signatures = stub_signatures()

    def signature(app, what, name, obj, options, given, returned):
        shown = [
            str(p.replace(annotation=p.empty)) for p in parameters_of(obj).values() if p.default is p.empty
        ]
        if shown and given is not None:
            positional = [text for text in shown if text[0] != "*"]
            return f"({', '.join([*positional, '**options'])})", returned
        if given is None:  # Sphinx has no place for one then
            return None
        if what == "class" and obj in (wsfast.WSListener, wsfast.WSTransport, wsfast.WSFrame):
            return "", None
        cls, member = name.split(".")[-2:]
        return signatures.get((cls, member))

    def docstring(app, what, name, obj, options, lines):
        text = "\n".join(lines)
        # Cython may begin a docstring with the signature, for help().
        text = re.sub(rf"^\w*\.?{name.rpartition('.')[2]}\(.*\n|^[\w.]+: \w+\n", "", text)
        # Sphinx knows no parameters with one description; "a, b" means both.
        several = re.compile(r"^:param (\w+), (\w.*?): (.*(?:\n {4}.*)*)$", re.MULTILINE)
        while several.search(text):
            text = several.sub(r":param \1: \3\n:param \2: \3", text)
        for option in parameters_of(obj).values():  # beside its meaning, not in the signature
            typed = f"{option.annotation}".replace("ssl_module.", "ssl.").replace("NotGiven | ", "")
            if option.default not in (option.empty, NOT_GIVEN):
                typed += f" = {getattr(option.default, '__name__', repr(option.default))}"
            text = re.sub(
                rf"^:param {option.name}: .*(?:\n {{4}}.*)*$",
                lambda found, typed=typed, option=option: f"{found[0]}\n:type {option.name}: ``{typed}``",
                text,
                flags=re.MULTILINE,
            )
        lines[:] = text.split("\n")

    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-process-docstring", docstring)
    app.connect("build-finished", write_llms_txt)
