"""The docstrings of the package, as numpydoc has them, for Sphinx.

In the package a field may stand on one line, ``name : what it is``, where numpydoc has a type and
then, indented, what it is; and names such as ``labels_`` and formulas such as ``|d|`` are plain
text, which mean something else in reStructuredText.
"""

import inspect
import re

FIELDS = ("Parameters", "Other Parameters", "Attributes", "Raises", "Warns")
RESULTS = ("Returns", "Yields")
NAME = r"\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*"
FIELD = re.compile(rf"^({NAME}) : (.*)$")


def process(app, what, name, obj, options, lines):
    """Handler of ``autodoc-process-docstring``, to be called before napoleon."""
    (_, intro), *rest = _sections(lines)
    intro = list(intro)
    for i, (title, found) in enumerate(rest):
        if title in FIELDS:
            fields, prose = _parted(found)
            rest[i] = (title, fields)
            intro += [*prose, ""] if prose else []
    lines[:] = [line for section in [("", intro), *rest] for line in _section(*section)]


def properties(app, what, name, obj, options, lines):
    """Handler of ``autodoc-process-docstring``, to be called after napoleon.

    It takes what stands before a colon in a property's first line for a type.
    """
    if what == "property" and obj.__doc__:
        lines[:] = [*_escaped(inspect.cleandoc(obj.__doc__).splitlines()), ""]


def skip(app, what, name, obj, skipped, options):
    """Handler of ``autodoc-skip-member``: what other packages define, they document."""
    # a property has no module, the function in it has
    module = getattr(getattr(obj, "fget", obj), "__module__", None) or "stkm"
    return True if not module.startswith("stkm") and callable(obj) else None


def resolve(app, env, node, contnode):
    """Find what docstrings call by a short name, such as `STKMeans` or `select`."""
    if node.get("refdomain") != "py":
        return None
    domain, target = env.get_domain("py"), node["reftarget"].lstrip(".")
    for whole in (f"stkm.{target}", f"stkm.plots.{target}", f"stkm.selection.{target}"):
        if whole in domain.objects:
            entry = domain.objects[whole]
            return _reference(app, node["refdoc"], entry.docname, entry.node_id, whole, contnode)
    return None


def _reference(app, here, there, anchor, title, content):
    from sphinx.util.nodes import make_refnode

    return make_refnode(app.builder, here, there, anchor, [content], title)


def _sections(lines):
    """(title or "", its lines) one after the other."""
    title, found = "", []
    for i, line in enumerate(lines):
        ruled = i + 1 < len(lines) and re.fullmatch(r"-{3,}", lines[i + 1])
        if line and ruled:
            yield title, found
            title, found = line, []
        elif not (title and not found and re.fullmatch(r"-{3,}", line)):
            found.append(line)
    yield title, found


def _section(title, lines):
    if not title:
        return _escaped(lines)
    if title in RESULTS:
        body = _results(lines)
    elif title in FIELDS:
        body = _fields(lines)
    elif title == "Examples":
        body = lines
    else:
        body = _escaped(lines)
    return [title, "-" * len(title), *body]


def _fields(lines):
    """``name : text`` as a name with a description, unless text is a type."""
    out, lines = [], _joined(lines)
    for i, line in enumerate(lines):
        found = FIELD.match(line)
        if not found:
            out += _escaped([line])
            continue
        after = lines[i + 1] if i + 1 < len(lines) else ""
        # "fig : Figure" and then, indented, a sentence: numpydoc's own form
        open_end = len(line) > 60 or re.search(r"[.,:;]$|\b(of|the|a|and)$", line)
        if re.match(r" +[A-Z`]", after) and not open_end:
            out += _escaped([line])
            continue
        name, text = found.groups()
        for more in re.split(rf"; (?={NAME} : )", text):
            again = FIELD.match(more)
            name, text = again.groups() if again else (name, more)
            out += [name, *_escaped([f"    {text}"])]
    return out


def _parted(lines):
    """Fields, and prose that follows them: napoleon takes every line in a section for a field."""
    for i, line in enumerate(lines):
        starts = i > 0 and not lines[i - 1].strip() and re.match(r"\S+ ", line)
        if starts and not FIELD.match(line) and not line.endswith(","):
            return lines[:i], lines[i:]
    return lines, []


def _joined(lines):
    """Names over several lines as one line."""
    out = []
    for line in lines:
        if out and re.match(r"\w", out[-1]) and out[-1].endswith(","):
            out[-1] += f" {line}"
        else:
            out.append(line)
    return out


def _results(lines):
    """A result in words stays in words: napoleon would take its first line for a type."""
    words = [line for line in lines if line.strip()]
    typed = len(words) > 1 and words[1].startswith(" ") and not words[0].startswith(" ")
    if not words or typed:
        return _escaped(lines)
    return ["result", *_escaped([f"    {line}" for line in lines])]


def _escaped(lines):
    """``labels_`` and ``|d|`` as they stand, outside literals, literal blocks and examples."""
    out, literal = [], None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if literal is not None and line.strip() and indent <= literal:
            literal = None
        if literal is None and not line.lstrip().startswith((">>>", "...")):
            parts = re.split(r"(``.*?``|:\w+:`[^`]*`|`[^`]*`)", line)
            parts[::2] = [re.sub(r"(\w)_(?!\w)|(?<!\\)(\||\*(?=\S))", _escape, p)
                          for p in parts[::2]]  # fmt: skip
            if line.rstrip().endswith("::"):
                literal = indent
            line = "".join(parts)
        out.append(line)
    return out


def _escape(found):
    return f"{found[1]}\\_" if found[1] else f"\\{found[2]}"
