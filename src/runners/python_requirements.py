# Has pip fetch the wheels that a project declares. Reads the manifests in the current folder as data; runs none of them.
# Arguments: `fetch`, or `local` (succeeds if this machine has everything), or `least` (the same without build tools), or
# `list` (prints what was read).
# Then the requirements files of the project and its tests, or `.pinned-by-hash` alone, if they pin packages by hash.
import ast, configparser, datetime, glob, json, os, pathlib, re, subprocess, sys

try:
    from pip._vendor.packaging.requirements import Requirement
    from pip._vendor.packaging.utils import canonicalize_name
except ImportError:
    sys.exit("error: python3 has no pip; install it (`apt install python3-pip`)")
try:
    import tomllib
except ImportError:
    from pip._vendor import tomli as tomllib

TEST_WORDS = {"test", "tests", "testing", "unittest", "unit", "dev", "develop", "development"}
CHECK_WORDS = {"check", "checks", "cov", "cover", "coverage", "doc", "docs", "lint", "style", "type", "types", "typing", "mypy"}
MINE = {"py", "py3", "py%d%d" % sys.version_info[:2]}
notes, needed, wanted, build, bounds = [], {}, {}, {}, []
own_extras, groups, asked, seen = {}, {}, set(), set()


def words(name):
    return set(filter(None, re.split(r"[^a-z0-9]+", name.lower())))


def is_test(name):
    return bool(words(name) & TEST_WORDS)


def read(path):
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""


def table(of, *names):
    for name in names:
        of = of.get(name) if isinstance(of, dict) else None
    return of if isinstance(of, dict) else {}


def add(line, origin, kind):
    """Adds one requirement. `kind` is one of the dictionaries of requirements."""
    if isinstance(line, dict):
        return [add(each, origin, kind) for each in groups.get(canonicalize_name(str(line.get("include-group"))), [])]
    line = re.sub(r"(^|\s)#.*", "", line).strip().replace("{toxinidir}/", "")
    if not line or (line, origin) in seen:
        return
    seen.add((line, origin))
    option = re.match(r"(-r|-c|-e|--requirement|--constraint|--editable)[\s=]*(.+)", line)
    if option and option[1] in ("-r", "-c", "--requirement", "--constraint"):
        path = os.path.normpath(os.path.join(os.path.dirname(origin), option[2]))
        if os.path.isabs(path) or path.startswith(".."):
            return notes.append(f"`{line}` of {origin} was not read; it leads out of the repository")
        return add_file(path, kind) if option[1] in ("-r", "--requirement") else add_bounds(path)
    own = re.fullmatch(r"(?:-e\s*|--editable[\s=])?\.{1,2}/?(?:\[(.*)\])?", line)
    if own:
        return add_extras((own[1] or "").split(","), kind)
    try:
        known = Requirement(line)
    except ValueError:
        return notes.append(f"`{line}` of {origin} was not read")
    name = canonicalize_name(known.name)
    if name == own_name:
        add_extras(known.extras, kind)
    elif known.url or name in sources:
        notes.append(f"`{line}` of {origin} was not fetched; only wheels from the package index are")
    else:
        kind.setdefault(str(known), origin)


def add_bounds(path):
    """Adds the versions of a constraints file. pip would also follow options and URLs in it, and so run code."""
    for line in read(path).splitlines():
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        try:
            known = Requirement(line) if line else None
        except ValueError:
            known = None
        if known and not known.url and "\n" not in str(known):
            bounds.append(str(known))
        elif line:
            notes.append(f"`{line}` of {path} was not read")


def add_file(path, kind):
    for line in re.sub(r"\\\r?\n", " ", read(path)).splitlines():
        add(line, path, kind)


def add_extras(names, kind):
    for name in {canonicalize_name(name.strip()) for name in names} - asked - {""}:
        asked.add(name)
        for line in own_extras.get(name, []):
            add(line, f"extra `{name}`", kind)


def add_list(lines, origin, kind):
    lines = lines.splitlines() if isinstance(lines, str) else lines
    for line in lines if isinstance(lines, list) else []:
        add(line, origin, kind)


def poetry_requirement(name, spec):
    """Translates poetry's `^1.2` and `~1.2` to PEP 440."""
    spec = spec[0] if isinstance(spec, list) and spec else spec
    of = spec if isinstance(spec, dict) else {"version": spec}
    if "version" not in of:
        return f"{name} @ {of.get('url') or of.get('git') or of.get('path') or of.get('file')}"

    def bound(text):
        sign, version = re.fullmatch(r"\s*([^\w*]*)\s*(.*?)\s*", text).groups()
        parts = [int(part) for part in re.findall(r"\d+", version.split("-")[0])]
        if sign not in ("^", "~") or not parts:
            return "" if version == "*" else (sign or "==") + version
        fixed = next((n for n, part in enumerate(parts) if part), len(parts) - 1) if sign == "^" else min(1, len(parts) - 1)
        return f">={version},<{'.'.join(map(str, [*parts[:fixed], parts[fixed] + 1]))}"

    versions = ",".join(filter(None, map(bound, str(of["version"]).split("||")[0].replace(" >", ",>").split(","))))
    extras = f"[{','.join(of['extras'])}]" if of.get("extras") else ""
    return f"{name}{extras}{versions}" + (f" ; {of['markers']}" if of.get("markers") else "")


def literals(path):
    """Returns the literal arguments of `setup(…)` in a setup.py, with names that stand for literals."""
    known, found = {}, {}

    def value(node):
        if isinstance(node, ast.Name):
            return known.get(node.id)
        if isinstance(node, ast.BinOp):
            return (value(node.left) or []) + (value(node.right) or [])
        if isinstance(node, ast.Dict):
            return {value(key): value(of) for key, of in zip(node.keys, node.values)}
        if isinstance(node, (ast.List, ast.Tuple)):
            return [of for of in map(value, node.elts) if isinstance(of, str)]
        return node.value if isinstance(node, ast.Constant) else None

    try:
        for node in ast.walk(ast.parse(read(path))):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                known[node.targets[0].id] = value(node.value)
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "setup":
                found.update((word.arg, value(word.value)) for word in node.keywords)
    except (SyntaxError, TypeError, ValueError):
        notes.append("setup.py was not read as a whole")
    return found


def tox_section(section, origin):
    """Reads a tox environment. A line may name the environments that it is for: `py311-unit: pytest`."""
    for key in ("deps", "extras", "dependency_groups"):
        lines = section.get(key, [])
        for line in re.split(r"\n" if key == "deps" else r"[\n,]", lines) if isinstance(lines, str) else lines:
            for_, line = re.fullmatch(r"\s*(?:([\w.!,{}-]+):\s+)?(.*)", str(line)).groups()
            if "{[" in line or for_ and ("!" in for_ or not words(for_) <= TEST_WORDS | MINE):
                continue
            if key == "deps":
                add(line, origin, wanted)
            elif key == "extras":
                add_extras([line] if not words(line) & CHECK_WORDS else [], wanted)
            else:
                add({"include-group": line}, origin, wanted)


def ini(path):
    found = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        found.read_string(read(path))
    except configparser.Error:
        notes.append(f"{path} cannot be read")
    return {name: dict(found[name]) for name in found.sections()}


try:
    project = tomllib.loads(read("pyproject.toml"))
except ValueError as error:
    sys.exit(f"error: pyproject.toml: {error}")
tool, meta, setup, cfg = table(project, "tool"), table(project, "project"), literals("setup.py"), ini("setup.cfg")
poetry, options = table(tool, "poetry"), cfg.get("options", {})
name = meta.get("name") or poetry.get("name") or cfg.get("metadata", {}).get("name") or setup.get("name")
own_name = canonicalize_name(name) if isinstance(name, str) else None
sources = {canonicalize_name(name) for name in table(tool, "uv", "sources")}
for extras in (table(meta, "optional-dependencies"), cfg.get("options.extras_require", {}), setup.get("extras_require")):
    for extra, lines in extras.items() if isinstance(extras, dict) else ():
        own_extras[canonicalize_name(extra)] = lines.splitlines() if isinstance(lines, str) else lines or []
for found in (table(project, "dependency-groups"), table(tool, "pdm", "dev-dependencies")):
    groups.update((canonicalize_name(group), lines) for group, lines in found.items())

hashed = sys.argv[2] if sys.argv[2:] == [".pinned-by-hash"] else None
uv = os.path.join(os.path.dirname(sys.executable), "uv")
tested = [group for group in groups if is_test(group)], [extra for extra in own_extras if is_test(extra)]
if not hashed and os.path.exists("uv.lock") and os.path.exists(uv):
    command = [uv, "export", "--frozen", "--offline", "--no-cache", "--no-emit-workspace", "--quiet", "--python", sys.executable]
    command += [f"--group={group}" for group in tested[0]] + [f"--extra={extra}" for extra in tested[1]]
    hashed = "/tmp/locked.txt"
    exported = subprocess.run([*command, "--output-file", hashed], stdout=subprocess.DEVNULL)
    if exported.returncode:
        sys.exit("error: `uv export --frozen` cannot read uv.lock")
    # A line with a URL would make pip build its source.
    pinned = r"[A-Za-z0-9][\w.-]*(\[[\w ,.-]*\])?==[\w.!+-]+\s*(;[^@#:]*?)?(\s+--hash=sha256:[0-9a-f]+)+"
    for line in re.sub(r"\\\r?\n", " ", read(hashed)).splitlines():
        if line.strip() and not line.strip().startswith("#") and not re.fullmatch(pinned, line.strip()):
            sys.exit(f"error: only packages of a package index are fetched, not `{line.strip()[:80]}` of uv.lock")
if not hashed:
    add_list(meta.get("dependencies"), "pyproject.toml", needed)
    add_list(options.get("install_requires"), "setup.cfg", needed)
    add_list(setup.get("install_requires"), "setup.py", needed)
    optional = {name for extra, names in table(poetry, "extras").items() if is_test(extra) for name in names}
    for package, spec in table(poetry, "dependencies").items():
        if package != "python" and (not table({"": spec}, "").get("optional") or package in optional):
            add(poetry_requirement(package, spec), "pyproject.toml", needed)
    for group, of in [("dev", {"dependencies": table(poetry, "dev-dependencies")}), *table(poetry, "group").items()]:
        for package, spec in table(of, "dependencies").items() if is_test(group) else ():
            add(poetry_requirement(package, spec), f"group `{group}`", wanted)
    for group in tested[0]:
        add({"include-group": group}, f"group `{group}`", wanted)
    add_extras(tested[1], wanted)
    for environment, of in table(tool, "hatch", "envs").items():
        if environment == "default" or is_test(environment):
            for key in ("dependencies", "extra-dependencies"):
                add_list(table({"": of}, "").get(key), f"hatch environment `{environment}`", wanted)
            add_extras(table({"": of}, "").get("features", []), wanted)
    add_list(options.get("tests_require"), "setup.cfg", wanted)
    add_list(setup.get("tests_require"), "setup.py", wanted)
    for section, of in ini("tox.ini").items():
        # Such as `testenv:tests` and `testenv:py{310,311}`, if it is for this Python.
        names = words(section[8:])
        numbers = {name for name in names if re.fullmatch(r"(py)?\d*", name)}
        if section.startswith("testenv") and names - numbers <= TEST_WORDS and (not numbers or {name[-3:] for name in numbers} & {name[-3:] for name in MINE}):
            tox_section(of, "tox.ini")
    tox_section(table(tool, "tox", "env_run_base"), "pyproject.toml")
    for path in sys.argv[2:]:
        add_file(path, wanted if is_test(path) else needed)
    unread = [lock for lock in ("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock") if os.path.exists(lock)]
    how = f"versions were resolved from the declared ranges on {datetime.date.today()}"
    if unread and (needed or wanted):
        why = ", because uv is not installed next to python3 (`python3 -m pip install uv`)" if unread == ["uv.lock"] else ""
        notes.append(f"{' and '.join(unread)} was not read{why}; {how}")
    elif needed or wanted:
        notes.append(f"there is no lock file; {how}")
requires = table(project, "build-system").get("requires")
requires = requires or ["setuptools", "wheel"] if "build-system" in project or os.path.exists("setup.py") else []
add_list(requires, "[build-system]", build)
for backend, more in (("setuptools", "wheel"), ("hatchling", "editables"), ("pdm", "editables")):
    # An editable install needs it. The backend says so only when it runs.
    add_list([more] if any(line.startswith(backend) for line in requires) else [], "[build-system]", build)
add_list(options.get("setup_requires"), "setup.cfg", build)
add_list(setup.get("setup_requires"), "setup.py", build)


def pip(lines, *arguments):
    pathlib.Path("/tmp/requirements.txt").write_text("\n".join([*lines, ""]))
    pathlib.Path("/tmp/constraints.txt").write_text("\n".join([*bounds, ""]))
    command = [sys.executable, "-I", "-m", "pip", "--no-input", "--disable-pip-version-check", "--no-color", "install"]
    certificates = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"]
    command += [f"--cert={path}" for path in certificates if os.path.exists(path)][:1]
    command += ["--only-binary=:all:", "--retries=1", "--cache-dir=/tmp/pip", *arguments]
    if "-r" not in arguments:
        command += ["-r", "/tmp/requirements.txt", "-c", "/tmp/constraints.txt"]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")


def fetch(lines, folder, *arguments):
    done = pip(lines, "--no-compile", f"--target={home}/{folder}", "--report=/tmp/report", *arguments)
    if done.returncode == 0:
        for item in json.loads(read("/tmp/report"))["install"]:
            hashes = item["download_info"].get("archive_info", {}).get("hashes", {})
            pins.append(" ".join([f"{item['metadata']['name']}=={item['metadata']['version']}", *(f"--hash={k}:{v}" for k, v in hashes.items())]))
    return done


def leave_out(line, dropped):
    dropped.append(line)
    notes.append(f"`{line}` of {wanted[line]} was left out: no wheel of it fits")


def resolve():
    """Fetches everything. Leaves out requirements of the tests that have no wheel."""
    dropped = []
    while True:
        kept = [line for line in wanted if line not in dropped]
        done = fetch([*needed, *kept, *build], "site")
        if done.returncode == 0 or not kept:
            return done
        missing = {canonicalize_name(name) for name in re.findall(r"No matching distribution found for ([\w.-]+)", done.stderr)}
        bad = [line for line in kept if canonicalize_name(Requirement(line).name) in missing]
        if bad:
            [leave_out(line, dropped) for line in bad]
            continue
        good = [*needed, *build]
        done = pip(good, "--dry-run")
        if done.returncode:
            return done
        for line in kept:
            if pip([*good, line], "--dry-run").returncode:
                leave_out(line, dropped)
            else:
                good.append(line)


def remove_own():
    """Removes the project itself, which a dependency brought along; the tests must use the tree's."""
    for info in glob.glob(f"{home}/*/*.dist-info"):
        if canonicalize_name(os.path.basename(info).split("-")[0]) == own_name:
            for line in read(info + "/RECORD").splitlines():
                path = os.path.normpath(os.path.join(os.path.dirname(info), line.rsplit(",", 2)[0].strip('"')))
                if path.startswith(os.path.dirname(info) + os.sep) and os.path.isfile(path):
                    os.remove(path)


home, pins = os.path.normpath(os.path.join(os.getcwd(), os.environ.get("HOME", "."))), []
if sys.argv[1] == "list":
    sys.exit(print("\n".join(["; ".join(map(str, each)) for each in (needed, wanted, build, notes)])))
if sys.argv[1] != "fetch":
    lines = [*needed, *wanted, *(build if sys.argv[1] == "local" else [])]
    if hashed:
        sys.exit(pip([], "--dry-run", "--no-index", "--no-deps", "--require-hashes", "-r", hashed).returncode)
    sys.exit(pip(lines, "--dry-run", "--no-index").returncode if lines else 0)
if hashed:
    done = fetch([], "site", "--require-hashes", "-r", hashed)
    if done.returncode == 0 and build:
        done = fetch(build, "build")
else:
    done = resolve()
sys.stderr.write(done.stderr)
if done.returncode:
    sys.exit(done.returncode)
remove_own()
pathlib.Path(home, "lock.txt").write_text("\n".join([*pins, ""]))
pathlib.Path(home, "notes").write_text("\n".join([*notes, ""]))
