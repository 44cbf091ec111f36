//! What a manifest depends on: names and versions, as it writes them.

use std::collections::BTreeMap;

use super::tree::file_name;

/// Bytes of a manifest that is read for what it depends on.
const MANIFEST: usize = 512 * 1024;

/// The dependencies that a manifest names, in order, each with what is asked of its version; empty if nothing is. A
/// manifest that cannot be read has none. Read by its form, not resolved: what a build adds is not here.
pub fn dependencies(path: &str, text: &str) -> BTreeMap<String, String> {
    if text.len() > MANIFEST {
        return BTreeMap::new();
    }
    match file_name(path) {
        "Cargo.toml" => of_toml(text, &["dependencies", "dev-dependencies", "build-dependencies"]),
        "pyproject.toml" => python_project(text),
        "package.json" => of_json(text, &["dependencies", "devDependencies", "peerDependencies"]),
        "composer.json" => of_json(text, &["require", "require-dev"]),
        "go.mod" => go(text),
        "requirements.txt" => text.lines().filter_map(requirement).collect(),
        "Gemfile" => text.lines().filter_map(gem).collect(),
        "pom.xml" => maven(text),
        "build.gradle" | "build.gradle.kts" => text.lines().filter_map(gradle).collect(),
        _ => BTreeMap::new(),
    }
}

fn of_toml(text: &str, sections: &[&str]) -> BTreeMap<String, String> {
    let Ok(manifest) = text.parse::<toml::Table>() else { return BTreeMap::new() };
    let workspace = manifest.get("workspace").and_then(toml::Value::as_table);
    let tables = [Some(&manifest), workspace].into_iter().flatten();
    tables
        .flat_map(|table| sections.iter().filter_map(|section| table.get(*section)?.as_table()))
        .flatten()
        .map(|(name, value)| {
            let version = value.as_str().or_else(|| value.get("version")?.as_str());
            (name.clone(), version.unwrap_or_default().to_owned())
        })
        .collect()
}

fn python_project(text: &str) -> BTreeMap<String, String> {
    let Ok(manifest) = text.parse::<toml::Table>() else { return BTreeMap::new() };
    let project = manifest.get("project");
    let listed = project.and_then(|project| project.get("dependencies"));
    let optional = project.and_then(|project| project.get("optional-dependencies")?.as_table());
    let groups = manifest.get("dependency-groups").and_then(toml::Value::as_table);
    let lists = listed.into_iter().chain(optional.into_iter().chain(groups).flat_map(|table| table.values()));
    let mut found: BTreeMap<String, String> = lists
        .filter_map(|list| list.as_array())
        .flatten()
        .filter_map(|line| requirement(line.as_str()?))
        .collect();
    let poetry = manifest.get("tool").and_then(|tool| tool.get("poetry")?.as_table());
    if let Some(poetry) = poetry {
        found.extend(of_toml(&poetry.to_string(), &["dependencies", "dev-dependencies"]));
    }
    found
}

fn of_json(text: &str, sections: &[&str]) -> BTreeMap<String, String> {
    let manifest: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    sections
        .iter()
        .filter_map(|section| manifest.get(section)?.as_object())
        .flatten()
        .map(|(name, version)| (name.clone(), version.as_str().unwrap_or_default().to_owned()))
        .collect()
}

/// `require example.com/shop v1.2.3`, or such lines in brackets. What only others need is not the module's own choice.
fn go(text: &str) -> BTreeMap<String, String> {
    let mut inside = false;
    let mut found = BTreeMap::new();
    for line in text.lines().filter(|line| !line.contains("// indirect")) {
        let line = line.split("//").next().unwrap_or_default().trim();
        match (line, inside) {
            (")", _) => inside = false,
            ("require (", _) => inside = true,
            _ => {
                let entry = line.strip_prefix("require ").or_else(|| inside.then_some(line));
                found.extend(entry.and_then(|entry| pair(entry.split_whitespace())));
            }
        }
    }
    found
}

fn pair<'t>(mut parts: impl Iterator<Item = &'t str>) -> Option<(String, String)> {
    Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
}

/// `requests[socks]>=2.0 ; python_version > "3"`.
fn requirement(line: &str) -> Option<(String, String)> {
    let line = line.split(['#', ';']).next()?.trim();
    let end = line.find(|c: char| !(c.is_alphanumeric() || "-_.".contains(c))).unwrap_or(line.len());
    let (name, version) = line.split_at(end);
    let version = version.split_once(']').map_or(version, |(_, after)| after).trim();
    (!name.is_empty() && !name.starts_with('-')).then(|| (name.to_owned(), version.to_owned()))
}

/// `gem "rails", "~> 7.1"`.
fn gem(line: &str) -> Option<(String, String)> {
    let mut quoted = line.trim().strip_prefix("gem ")?.split(['"', '\'']).skip(1).step_by(2);
    let name = quoted.next()?.to_owned();
    let version = quoted.next().filter(|text| text.contains(|c: char| c.is_ascii_digit()));
    Some((name, version.unwrap_or_default().to_owned()))
}

fn maven(text: &str) -> BTreeMap<String, String> {
    let inner = |block: &str, tag: &str| {
        let (_, after) = block.split_once(&format!("<{tag}>"))?;
        Some(after.split_once('<')?.0.trim().to_owned())
    };
    let blocks = text.split("<dependency>").skip(1).filter_map(|rest| rest.split("</dependency>").next());
    blocks
        .filter_map(|block| {
            let name = format!("{}:{}", inner(block, "groupId")?, inner(block, "artifactId")?);
            Some((name, inner(block, "version").unwrap_or_default()))
        })
        .collect()
}

/// `implementation("group:name:1.0")`.
fn gradle(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let kinds =
        ["api", "implementation", "compileOnly", "runtimeOnly", "testImplementation", "annotationProcessor"];
    kinds.iter().find(|kind| line.strip_prefix(**kind).is_some_and(|rest| rest.starts_with([' ', '('])))?;
    let mut parts = line.split(['"', '\'']).nth(1)?.splitn(3, ':');
    let name = format!("{}:{}", parts.next()?, parts.next()?);
    Some((name, parts.next().unwrap_or_default().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions_of_each_kind() {
        let said = |path: &str, text: &str| {
            dependencies(path, text)
                .iter()
                .map(|(name, version)| format!("{name} {version}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let cargo = "[dependencies]\nserde = { version = \"1\" }\nhex = \"0.4\"\nown = { path = \"x\" }\n";
        assert_eq!(said("a/Cargo.toml", cargo), "hex 0.4, own , serde 1");
        let project = "[project]\ndependencies = [\"click>=8.1; x\", \"a[b]==2\"]\n[tool.poetry.dependencies]\nz = \"^3\"\n";
        assert_eq!(said("pyproject.toml", project), "a ==2, click >=8.1, z ^3");
        assert_eq!(said("requirements.txt", "# no\n-r x\nflask==3 # why\n"), "flask ==3");
        assert_eq!(
            said("package.json", r#"{"dependencies":{"vite":"^8"},"devDependencies":{"a":1}}"#),
            "a , vite ^8"
        );
        assert_eq!(
            said(
                "go.mod",
                "module m\nrequire a.b/c v1 // why\nrequire (\n\tx.y/z v2\n\tp.q/r v3 // indirect\n)\n"
            ),
            "a.b/c v1, x.y/z v2"
        );
        assert_eq!(said("Gemfile", "gem 'rails', '~> 7.1'\ngem \"pg\"\n"), "pg , rails ~> 7.1");
        let pom =
            "<dependency><groupId>g</groupId><artifactId>a</artifactId><version>1</version></dependency>";
        assert_eq!(said("pom.xml", pom), "g:a 1");
        assert_eq!(said("build.gradle", "  implementation 'g:a:2'\n  apiVersion 'no:no:1'\n"), "g:a 2");
        assert_eq!(said("Cargo.toml", "[[["), "");
        assert_eq!(said("package.json", "[]"), "");
    }
}
